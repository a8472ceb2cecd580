"""What people see on a terminal: tables of text, and progress."""
