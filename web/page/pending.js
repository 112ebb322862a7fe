// Holds changes of the map that wait to be drawn together.

/** Joins changes, so that each strip is put or removed once. */
export class Pending {
  #spaces = new Map()
  #put = new Map()
  #remove = new Set()

  get isEmpty() {
    return this.#put.size === 0 && this.#remove.size === 0
  }

  /** Takes a change. It removes before it puts. @param {{spaces: object[], strips: object[]}} put */
  take(put, remove) {
    for (const space of put.spaces) this.#spaces.set(space.id, space)
    for (const id of remove) {
      this.#put.delete(id)
      this.#remove.add(id)
    }
    for (const strip of put.strips) this.#put.set(strip.id, strip)
  }

  /**
   * Returns the joined changes, and starts with none again.
   * @returns {{put: {spaces: object[], strips: object[]}, remove: string[]}} the joined changes
   */
  end() {
    const change = { put: { spaces: [...this.#spaces.values()], strips: [...this.#put.values()] }, remove: [...this.#remove] }
    this.#spaces = new Map()
    this.#put = new Map()
    this.#remove = new Set()
    return change
  }
}
