// Main: where the bundle begins. A notebook (anywidget) takes the default export; a page of its own
// starts itself.

import { render } from "./page/render.js";
import { start } from "./page/stored.js";

start();

export default { render };
