"""What reading and writing WebSocket frames costs: this project's way, and that of picows, a WebSocket in C."""
