// Measures and shortens text.

import { firstIndex } from './lane.js'

export const LABEL = '600 12px system-ui, "Segoe UI", Roboto, "Liberation Sans", sans-serif'
export const SUB = '400 11px system-ui, "Segoe UI", Roboto, "Liberation Sans", sans-serif'
/** Space around text. */
export const PAD = 6
/** The height of a line of text. */
export const LINE = 15
const ELLIPSIS = '…'
/** The least number of characters of a shortened text. */
const LEAST = 5

/** Measures texts by their characters, each of which is measured once. */
export class Measure {
  constructor() {
    this.fonts = new Map()
  }

  /** Returns the width of a text, in whole pixels, rounded up. */
  width(ctx, font, text) {
    let widths = this.fonts.get(font)
    if (widths === undefined) this.fonts.set(font, (widths = new Map()))
    let sum = 0
    for (const character of text) {
      let width = widths.get(character)
      if (width === undefined) {
        ctx.font = font
        width = ctx.measureText(character).width
        widths.set(character, width)
      }
      sum += width
    }
    return Math.ceil(sum)
  }

  /**
   * Returns the text, or a shorter one that fits into a number of pixels, or ''. It does not cut
   * an address or a CIDR, because the rest would read as another one; of a CIDR it shows the
   * length.
   */
  fit(ctx, font, text, room) {
    if (room <= 0 || text === '') return ''
    if (this.width(ctx, font, text) <= room) return text
    const cidr = /^[0-9a-fA-F:.]+(\/\d+)?$/.exec(text)
    if (cidr !== null) {
      const length = cidr[1] ?? ''
      return length !== '' && this.width(ctx, font, length) <= room ? length : ''
    }
    const characters = [...text]
    const most = firstIndex(1, characters.length, (n) => this.width(ctx, font, shortened(characters, n)) > room) - 1
    return most < LEAST - 1 ? '' : shortened(characters, most)
  }
}

/** Shortens a text to a number of characters: including the last ones, in which names often differ. */
function shortened(characters, count) {
  const end = count < 4 ? 0 : Math.floor(count / 2)
  return characters.slice(0, count - end).join('') + ELLIPSIS + characters.slice(characters.length - end, characters.length).join('')
}
