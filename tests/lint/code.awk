# code.awk -- what the layout rules share: lines of C, C++ or CUDA without comments and the inside of
# strings, and the parentheses and braces that are open. Used as awk -f code.awk -f RULE.awk FILE...
function fault(text) {
    print FILENAME ":" FNR ": " text
    faults++
}
# The end of the string or character that begins at i, or of the line.
function literal_end(line, i,    quote, n) {
    quote = substr(line, i, 1)
    n = length(line)
    for (i++; i <= n && substr(line, i, 1) != quote; i++)
        if (substr(line, i, 1) == "\\") i++
    return i
}
function code(line,    out, i, n, two, c) {
    if (!in_comment && line !~ /["'\/]/) return line
    out = ""
    n = length(line)
    for (i = 1; i <= n; i++) {
        two = substr(line, i, 2)
        c = substr(line, i, 1)
        if (in_comment) {
            if (two == "*/") { in_comment = 0; i++; out = out " " }
        } else if (two == "/*") { in_comment = 1; i++
        } else if (two == "//") break
        else if (c == "\"") { i = literal_end(line, i); out = out "\"\""
        } else if (c == "'" && out !~ /[0-9A-Fa-f]$/) { i = literal_end(line, i); out = out "0"
        } else if (c != "'") out = out c
    }
    return out
}
# A rule has begin(), which forgets all that is open, and take(code). A directive with the lines that
# continue it stands for itself: what was open before it is open after it.
FNR == 1 { in_comment = directive = 0; begin() }
{
    was_comment = in_comment
    text = code($0)
    if (!directive && !was_comment && text ~ /^[ \t]*#/) { directive = 1; save(); begin() }
    if (directive) sub(/\\$/, "", text)
    if (directive && text ~ /^[ \t]*#[ \t]*define/) sub(/^[ \t]*#[ \t]*define[ \t]+[A-Za-z0-9_]+(\([^)]*\))?/, "", text)
    else if (directive && text ~ /^[ \t]*#/) text = ""
    take(text)
    if (directive && $0 !~ /\\$/) { directive = 0; restore() }
}
END { exit faults > 0 }
