"""Families of robots on MuJoCo: one file each, beside the robots and the shard that they share."""
