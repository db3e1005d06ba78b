// htmx, where its extensions look for it.
import htmx from "htmx.org";

window.htmx = htmx;
export default htmx;
