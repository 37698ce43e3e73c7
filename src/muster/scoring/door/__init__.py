"""The front door of an endpoint: takes requests, chooses a deployment for each, and has one of its replicas answer."""
