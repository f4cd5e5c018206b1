# At most one ?: in a line, so that it is read at once; the second gets a line or a name of its own.
function begin() { }
function save() { }
function restore() { }
function take(text) {
    if (gsub(/\?/, "?", text) > 1) fault("more than one ?: in a line: give one a name or an if")
}
