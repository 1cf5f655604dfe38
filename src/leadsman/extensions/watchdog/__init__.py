"""What a service manager, a container and a person learn about the process."""
