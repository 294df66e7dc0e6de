// Page: the model of a saved page, where there is no kernel: what Python wrote into it. Appended to the widget's own script.

const state = JSON.parse(new TextDecoder().decode(storedBytes("settings")));
for (const name of ["film", "other"]) state[name] = new DataView(storedBytes(name).buffer);
const get = (name) => state[name], set = (name, value) => { state[name] = value; };
render({ model: { get, set, save_changes() {}, on() {}, off() {} }, el: document.querySelector("main") });
if (window === window.top) document.querySelector(".specviz").focus({ preventScroll: true }); // it is all there is: keys go there
