/* hcc's rewriter: reads preprocessed source (see preprocessed.h). */
#include "preprocessed.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

namespace rewriter {

static bool begins_name(char c) {
    return isalpha(static_cast<unsigned char>(c)) || c == '_' || c == '$' || (c & 0x80);
}

static bool in_name(char c) { return begins_name(c) || isdigit(static_cast<unsigned char>(c)); }

Source::Source(const std::string &given) : text(given) {
    read();
    match_brackets();
}

/* ---- reading --------------------------------------------------------------------------------- */

/* # 12 "file.cu" 1, or #line 12 "file.cu", or a pragma. */
size_t Source::read_directive(size_t at) {
    Directive d;
    d.begin = at;
    d.end = std::min(text.find('\n', at), text.size());
    while (d.end < text.size() && text[d.end - 1] == '\\')
        d.end = std::min(text.find('\n', d.end + 1), text.size());
    size_t number = at + 1;
    while (number < d.end && text[number] == ' ') ++number;
    if (text.compare(number, 5, "line ") == 0) number += 5;
    const size_t quote = text.find('"', number), last = text.rfind('"', d.end);
    if (isdigit(static_cast<unsigned char>(text[number])) && quote < last && last < d.end) {
        d.line = static_cast<size_t>(atol(text.c_str() + number));
        d.file = text.substr(quote + 1, last - quote - 1);
        d.system = text.substr(last, d.end - last).find(" 3") != std::string::npos;
    } else { /* a pragma */
        const auto from = text.begin() + static_cast<std::ptrdiff_t>(at);
        const auto to = text.begin() + static_cast<std::ptrdiff_t>(d.end);
        d.line = line_at(at) + 1 + static_cast<size_t>(std::count(from, to, '\n'));
        const Directive *before = directive_before(at);
        d.file = before ? before->file : "";
        d.system = before && before->system;
    }
    directives.push_back(d);
    return d.end;
}

size_t Source::read_quoted(size_t at) {
    const char quote = text[at];
    size_t i = at + 1;
    while (i < text.size() && text[i] != quote && text[i] != '\n') i += text[i] == '\\' ? 2 : 1;
    i = std::min(i + 1, text.size());
    tokens.push_back(Token{Kind::TEXT, at, i, NONE});
    return i;
}

/* R"mark( ... )mark"; at is its first quote. */
size_t Source::read_raw(size_t at) {
    const size_t open = text.find('(', at);
    if (open == std::string::npos) return read_quoted(at);
    const std::string close = ")" + text.substr(at + 1, open - at - 1) + "\"";
    const size_t found = text.find(close, open);
    const size_t end = found == std::string::npos ? text.size() : found + close.size();
    tokens.push_back(Token{Kind::TEXT, at, end, NONE});
    return end;
}

size_t Source::read_name(size_t at) {
    size_t i = at;
    while (i < text.size() && in_name(text[i])) ++i;
    const std::string name = text.substr(at, i - at);
    if (i < text.size() && text[i] == '"' &&
        (name == "R" || name == "u8R" || name == "uR" || name == "UR" || name == "LR"))
        return read_raw(i);
    tokens.push_back(Token{Kind::NAME, at, i, NONE});
    return i;
}

size_t Source::read_number(size_t at) const {
    size_t i = at + 1;
    for (; i < text.size(); ++i) {
        const char c = text[i], before = text[i - 1];
        const bool exponent = before == 'e' || before == 'E' || before == 'p' || before == 'P';
        const bool sign = (c == '+' || c == '-') && exponent;
        const bool separator = c == '\'' && i + 1 < text.size() && in_name(text[i + 1]);
        if (!in_name(c) && c != '.' && !sign && !separator) break;
    }
    return i;
}

/* The end of the comment that begins here, or at. */
size_t Source::skip_comment(size_t at) const {
    if (text.compare(at, 2, "//") == 0) return std::min(text.find('\n', at), text.size());
    if (text.compare(at, 2, "/*") != 0) return at;
    const size_t end = text.find("*/", at + 2);
    return end == std::string::npos ? text.size() : end + 2;
}

void Source::read() {
    bool first_in_line = true;
    for (size_t i = 0; i < text.size();) {
        const char c = text[i];
        const size_t after = c == '/' ? skip_comment(i) : i;
        if (c == '\n' || isspace(static_cast<unsigned char>(c))) {
            first_in_line = first_in_line || c == '\n';
            ++i;
            continue;
        }
        if (c == '#' && first_in_line) {
            i = read_directive(i);
            continue;
        }
        first_in_line = false;
        const bool point = c == '.' && i + 1 < text.size() && isdigit(text[i + 1]);
        if (after != i) {
            i = after;
        } else if (begins_name(c)) {
            i = read_name(i);
        } else if (isdigit(static_cast<unsigned char>(c)) || point) {
            const size_t end = read_number(i);
            tokens.push_back(Token{Kind::NUMBER, i, end, NONE});
            i = end;
        } else if (c == '"' || c == '\'') {
            i = read_quoted(i);
        } else {
            const std::string two = text.substr(i, 2);
            const bool both = two == "::" || two == "->" || two == "<=" || two == ">=";
            tokens.push_back(Token{Kind::SIGN, i, i + (both ? 2 : 1), NONE});
            i = tokens.back().end;
        }
    }
}

void Source::match_brackets() {
    std::vector<size_t> open;
    for (size_t i = 0; i < tokens.size(); ++i) {
        if (tokens[i].kind != Kind::SIGN) continue;
        const char c = text[tokens[i].begin];
        if (c == '(' || c == '[' || c == '{') open.push_back(i);
        if ((c != ')' && c != ']' && c != '}') || open.empty()) continue;
        tokens[i].partner = open.back();
        tokens[open.back()].partner = i;
        open.pop_back();
    }
}

/* ---- asking ---------------------------------------------------------------------------------- */

bool Source::is(size_t i, const char *what) const {
    if (i >= tokens.size()) return false;
    return text.compare(tokens[i].begin, tokens[i].end - tokens[i].begin, what) == 0;
}

std::string Source::word(size_t i) const {
    if (i >= tokens.size()) return "";
    return text.substr(tokens[i].begin, tokens[i].end - tokens[i].begin);
}

size_t Source::close_angle(size_t i) const {
    size_t depth = 0;
    for (; i < tokens.size(); ++i) {
        if (is(i, "(") || is(i, "[") || is(i, "{")) {
            if (partner(i) == NONE) return NONE;
            i = partner(i);
        } else if (is(i, ")") || is(i, "]") || is(i, "}") || is(i, ";")) {
            return NONE;
        } else if (is(i, "<")) {
            ++depth;
        } else if (is(i, ">") && --depth == 0) {
            return i;
        }
    }
    return NONE;
}

size_t Source::open_angle(size_t i) const {
    size_t depth = 0;
    for (++i; i-- > 0;) {
        if (is(i, ")") || is(i, "]") || is(i, "}")) {
            if (partner(i) == NONE) return NONE;
            i = partner(i);
        } else if (is(i, "(") || is(i, "[") || is(i, "{") || is(i, ";")) {
            return NONE;
        } else if (is(i, ">")) {
            ++depth;
        } else if (is(i, "<") && --depth == 0) {
            return i;
        }
    }
    return NONE;
}

std::string Source::in_one_line(size_t first, size_t last) const {
    std::string line;
    for (size_t i = first; i < last && i < tokens.size(); ++i) {
        if (i > first && tokens[i].begin != tokens[i - 1].end) line += ' ';
        line += word(i);
    }
    return line;
}

const Directive *Source::directive_before(size_t position) const {
    const auto after = std::upper_bound(directives.begin(), directives.end(), position,
                                        [](size_t at, const Directive &d) { return at < d.begin; });
    return after == directives.begin() ? nullptr : &*(after - 1);
}

std::string Source::file_at(size_t position) const {
    const Directive *d = directive_before(position);
    return d ? d->file : "";
}

bool Source::of_system(size_t i) const {
    const Directive *d = directive_before(tokens[i].begin);
    return d && d->system;
}

size_t Source::line_at(size_t position) const {
    const Directive *d = directive_before(position);
    const size_t from = d ? d->end + 1 : 0;
    if (position < from) return d->line;
    const auto begin = text.begin() + static_cast<std::ptrdiff_t>(from);
    const auto end = text.begin() + static_cast<std::ptrdiff_t>(position);
    return (d ? d->line : 1) + static_cast<size_t>(std::count(begin, end, '\n'));
}

std::string Source::where(size_t i) const {
    const size_t at = i < tokens.size() ? tokens[i].begin : text.size();
    return file_at(at) + ":" + std::to_string(line_at(at));
}

/* ---- changing -------------------------------------------------------------------------------- */

void Source::replace(size_t begin, size_t end, const std::string &what) {
    changes.push_back(Change{begin, end, what});
}

void Source::replace_tokens(size_t first, size_t last, const std::string &what) {
    const size_t begin = tokens[first].begin, end = tokens[last].end;
    const auto from = text.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto to = text.begin() + static_cast<std::ptrdiff_t>(end);
    std::string lines(static_cast<size_t>(std::count(from, to, '\n')), '\n');
    if (directive_before(begin) != directive_before(end))
        lines = "\n# " + std::to_string(line_at(end)) + " \"" + file_at(end) + "\"\n";
    replace(begin, end, what + lines);
}

std::string Source::result() const {
    std::vector<Change> sorted = changes;
    std::stable_sort(sorted.begin(), sorted.end(), [](const Change &a, const Change &b) {
        return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
    });
    std::string out;
    out.reserve(text.size() + text.size() / 8);
    size_t at = 0;
    for (const Change &c : sorted) {
        if (c.begin < at) continue; /* within what another change removed */
        out.append(text, at, c.begin - at);
        out += c.what;
        at = c.end;
    }
    return out.append(text, at, std::string::npos);
}

} /* namespace rewriter */
