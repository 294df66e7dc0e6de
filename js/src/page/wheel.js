// Wheel: how far a wheel or a touchpad was turned sideways. Knows no page.

/**
 * px to the right; 0 where the page is to scroll. With Shift a wheel of one axis turns sideways.
 * @param {any} event
 * @returns {number}
 */
export function sideways({ shiftKey, deltaX, deltaY }) {
  if (shiftKey && !deltaX) return deltaY;
  return Math.abs(deltaX) > Math.abs(deltaY) ? deltaX : 0;
}
