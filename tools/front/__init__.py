"""What stands in front of back ends: the end point that nginx's mail proxy asks who may log in, and where to."""
