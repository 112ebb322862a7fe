// Counts the values of a facet, by which the maps are colored.

/**
 * Counts the blocks and pools with each value of a facet.
 * @param {string} name cluster, project, class or holder
 * @returns {Map<string, number>}
 */
export function countsOf(store, name) {
  const counts = new Map(store.facet(name === 'holder' ? 'kind' : name))
  const valueOf = { cluster: () => '', project: (pool) => pool.project ?? '', class: (pool) => (pool.classes ?? []).join(', '), holder: (pool) => pool.kind }[name]
  for (const pool of store.pools.values()) {
    const value = valueOf(pool)
    if (value !== '') counts.set(value, (counts.get(value) ?? 0) + 1)
  }
  return counts
}
