-- Pandoc filter of the decks: figures as part of the page, formulas as browsers draw them well.

-- An SVG inside the page, unlike one in <img>, uses the deck's fonts.
function Image(image)
  if not image.src:match("%.svg$") then return nil end
  for _, folder in ipairs(PANDOC_STATE.resource_path) do
    local file = io.open(folder .. "/" .. image.src, "r")
    if file then
      local svg = file:read("a")
      file:close()
      return pandoc.RawInline("html", svg)
    end
  end
  error("figure not found: " .. image.src)
end

-- Pandoc's MathML makes all brackets stretchy, which leaves gaps around small ones, fixes the size
-- of \Big ones, which must grow with their content, and takes the letter ℓ for an operator.
function Math(math)
  local options = {html_math_method = "mathml"}
  local html = pandoc.write(pandoc.Pandoc({pandoc.Plain({math})}), "html", options)
  html = html:gsub('stretchy="true"', 'stretchy="false"')
  html = html:gsub('minsize="1.8" maxsize="1.8" stretchy="false"', 'stretchy="true"')
  html = html:gsub("<mo>ℓ</mo>", "<mi>ℓ</mi>")
  return pandoc.RawInline("html", html)
end
