"""Messages between the server and the agents of nodes: hello, orders, deliveries, and a node's plan."""
