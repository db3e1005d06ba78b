"""Several runs beside each other: their figures as one table, their texts aligned by origin, and the difference of two texts."""
