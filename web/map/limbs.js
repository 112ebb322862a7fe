// Splits an address of 128 bits into three whole numbers of a Float64Array. With them the distance
// of two addresses is calculated without BigInt and without loss: every difference of limbs is
// exact, and their weighted sum is rounded once, so that its error is below 2^-52 of the distance.
// Drawing needs that for thousands of strips in each frame.

const BITS = 42n
const MASK = (1n << BITS) - 1n

/** The weight of the middle limb, and of the high one. */
export const MIDDLE = 2 ** 42
export const HIGH = 2 ** 84

/** @returns {number} bits 84 and above; one more than an address may have */
export function high(value) {
  return value <= MASK ? 0 : Number(value >> (2n * BITS))
}

/** @returns {number} bits 42 to 83 */
export function middle(value) {
  return value <= MASK ? 0 : Number((value >> BITS) & MASK)
}

/** @returns {number} bits 0 to 41 */
export function low(value) {
  return value <= MASK ? Number(value) : Number(value & MASK)
}
