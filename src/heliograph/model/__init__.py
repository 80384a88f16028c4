"""The words everybody uses: ids, blocks, messages, destinations, limits, errors. Nothing here touches the
world."""
