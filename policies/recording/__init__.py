"""What a run gives to others: its record to services, and its trials as a dataset."""
