"""The learner and what it is made of: agents (encoder -> memory -> heads), algorithms (losses), the wave
loop, targets.
"""
