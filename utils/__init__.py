"""Small tools, one noun per file; nothing here knows the project."""
