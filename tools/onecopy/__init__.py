"""What other programs may import: `onecopy` in an installation, `tools.onecopy` here. Nothing of ours imports it."""
