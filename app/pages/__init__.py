"""What a browser or a program asks for: one router for each page."""
