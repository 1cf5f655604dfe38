"""Divides devices among the nodes of a cluster. Leases show which node has which; see
`leadsman.extensions.nodes.lease`."""
