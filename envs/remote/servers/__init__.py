"""Servers of our own on OpenEnv's server API, to try things out, to learn and to test against."""
