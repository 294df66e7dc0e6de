// Player: goes from step to step in time, until the last one.

/** @import { Shell } from "./shell.js" */

export const SPEEDS = [0.5, 1, 2, 4, 8]; // phases a second

export class Player {
  /** @type {number | undefined} */ timer;
  playing = false;
  speed = 1; // a number in SPEEDS

  /** @param {Shell} shell */
  constructor(shell) {
    this.shell = shell;
  }

  /** @param {boolean} on */
  play(on) {
    const { shell } = this;
    clearInterval(this.timer);
    this.playing = on && shell.clocks > 1;
    if (this.playing && shell.clock === shell.clocks - 1) shell.go(0);
    if (this.playing) this.timer = setInterval(() => this._tick(), 1000 / SPEEDS[this.speed]);
    shell.controls.updatePlay();
  }

  toggle() {
    this.play(!this.playing);
  }

  /** @param {number} number */
  setSpeed(number) {
    this.speed = Math.min(Math.max(number, 0), SPEEDS.length - 1);
    this.play(this.playing); // with a timer of the new speed
  }

  _tick() {
    const { shell } = this;
    if (shell.clock < shell.clocks - 1) shell.go(shell.clock + 1);
    if (shell.clock === shell.clocks - 1) this.play(false);
  }
}
