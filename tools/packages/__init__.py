"""How a package of onecopy is made. It is no part of one."""
