"""Between the server and the agents of nodes: hello, orders, deliveries, and the plan that a node carries out."""
