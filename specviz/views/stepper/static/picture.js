// Picture: a page that only draws the figure of the runs in it, while it loads. Appended to the widget's own script. Leaves the picture, in
// base64, as text in the page; or what went wrong.

function storedJson(id) {
  return document.getElementById(id) && JSON.parse(new TextDecoder().decode(storedBytes(id)));
}

let picture;
try {
  const films = ["film", "other"].map(storedJson).filter(Boolean).map((json) => new Film(json));
  picture = drawFigure(films, storedJson("settings"), document.querySelector("main"));
} catch (error) {
  picture = `error: ${error.message}`;
}
document.body.append(element("pre", { id: "figure" }, picture));
