"""Administration: subjects, who answers them, and the ways in which a question comes (M13)."""
