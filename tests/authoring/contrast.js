// Find all text on a page with too little contrast against its background. Only the first folded sections are opened, because all of them look alike.
([least, leastLarge]) => {
  for (const fold of [...document.querySelectorAll("details")].slice(0, 60)) fold.open = true;
  const sRGB = (value) => (value /= 255) <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const luminance = ([red, green, blue]) => 0.2126 * sRGB(red) + 0.7152 * sRGB(green) + 0.0722 * sRGB(blue);
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const colors = new Map();
  const rgba = (color) => {
    if (!colors.has(color)) {
      canvas.clearRect(0, 0, 1, 1);
      canvas.fillStyle = color;
      canvas.fillRect(0, 0, 1, 1);
      const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data;
      colors.set(color, [red, green, blue, alpha / 255]);
    }
    return colors.get(color);
  };
  const over = (front, back) => back.map((value, i) => front[3] * front[i] + (1 - front[3]) * value).slice(0, 3);
  const parent = (element) => element.parentElement ?? element.getRootNode().host ?? null;
  const backs = new Map();
  const behind = (element) => {
    if (!element) return [255, 255, 255];
    if (!backs.has(element)) backs.set(element, over(rgba(getComputedStyle(element).backgroundColor), behind(parent(element))));
    return backs.get(element);
  };
  const opacity = (element) => (element ? Number(getComputedStyle(element).opacity) * opacity(parent(element)) : 1);

  const weak = new Map();
  let texts = 0;
  const examine = (element) => {
    const style = getComputedStyle(element), box = element.getBoundingClientRect();
    if (style.visibility !== "visible" || box.width <= 1 || box.height <= 1 || element.closest("script, style, noscript")) return;
    const clear = opacity(element);
    if (clear === 0) return;
    const back = behind(element);
    const front = rgba(element.ownerSVGElement ? style.fill : style.color);
    const seen = over([...front.slice(0, 3), front[3] * clear], back);
    const [low, high] = [luminance(seen), luminance(back)].sort((a, b) => a - b);
    const contrast = (high + 0.05) / (low + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    texts += 1;
    if (contrast < (large ? leastLarge : least)) {
      const what = `${element.tagName.toLowerCase()}.${element.getAttribute("class") ?? ""} ${contrast.toFixed(2)}`;
      if (!weak.has(what)) weak.set(what, `${what}: ${element.textContent.trim().slice(0, 40)}`);
    }
  };
  const walk = (root) => {
    for (const element of root.querySelectorAll("*")) {
      if (element.shadowRoot) walk(element.shadowRoot);
      if ([...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim())) examine(element);
    }
  };
  walk(document.body);
  return { texts, weak: [...weak.values()] };
}
