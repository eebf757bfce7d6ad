"""What policies are built from: demand, placement, free capacity, victims, reservations, and the plan."""
