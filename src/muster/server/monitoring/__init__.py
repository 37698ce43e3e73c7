"""What monitoring systems read of the server."""
