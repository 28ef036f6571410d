"""Databases made anew or repaired: from the user area, message files, tables that are left, or a plan."""
