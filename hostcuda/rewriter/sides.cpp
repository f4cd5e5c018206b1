/* hcc's rewriter: who may call whom (see sides.h). It knows functions by their names: of a name
 * that several functions have, it says something only if none of them may be called. */
#include "sides.h"

#include <iostream>
#include <map>
#include <set>

namespace rewriter {
namespace {

struct Function {
    size_t begin, open, close; /* its first token; the brackets of its body */
    std::string name;
    bool device, host;
};

/* Of one name: where it may be called, by any of its declarations. */
struct Callable {
    bool by_device, by_host;
    bool other; /* it is also something that is no free function */
};

struct Sides {
    const Source &source;
    std::vector<Function> functions;
    std::map<std::string, Callable> names;
    int errors;

    explicit Sides(const Source &s) : source(s), errors(0) {}
};

bool is_one_of(const Source &s, size_t i, std::initializer_list<const char *> words) {
    for (const char *word : words)
        if (s.is(i, word)) return true;
    return false;
}

size_t past_bracket(const Source &s, size_t i, size_t end) {
    const size_t close = s.is(i, "<") ? s.close_angle(i) : s.partner(i);
    return close != NONE && close > i && close < end ? close : i;
}

/* The name of the function that the tokens from begin to end declare; "" if they declare none. */
std::string function_name(const Source &s, size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
        if (s.is(i, "=") || s.is(i, "operator")) return "";
        const bool more = is_one_of(s, i,
                                    {"__attribute__", "alignas", "decltype", "noexcept", "__asm__",
                                     "explicit", "requires"});
        if (s.is_name(i) && s.is(i + 1, "(") && !more) return s.word(i);
        i = past_bracket(s, i, end);
    }
    return "";
}

/* Where the statement of tokens begin to end (a semicolon or a bracket) may be called from. */
void declare(Sides &d, size_t begin, size_t end, bool member) {
    const Source &s = d.source;
    Function f = {begin, end, s.partner(end), function_name(s, begin, end), false, false};
    if (f.name.empty()) return;
    bool kernel = false, any = false;
    for (size_t i = begin; i < end; ++i) {
        kernel = kernel || s.is(i, "__global__");
        f.device = f.device || s.is(i, "__device__");
        f.host = f.host || s.is(i, "__host__");
        any = any || s.is(i, "constexpr") || s.is(i, "using") || s.is(i, "typedef");
        i = past_bracket(s, i, end);
    }
    f.host = f.host || (!f.device && !kernel);
    f.device = f.device || kernel;
    Callable &name = d.names[f.name];
    name.by_device = name.by_device || f.device || any;
    name.by_host = name.by_host || f.host || any;
    name.other = name.other || member || kernel || s.of_system(begin);
    if (!any && s.is(end, "{") && !s.of_system(begin)) d.functions.push_back(f);
}

/* What the brace at token i, the end of the statement that begins at begin, is of. */
enum class Brace {
    FUNCTION,
    SPACE,
    CLASS,
    OTHER
};

Brace brace_kind(const Source &s, size_t begin, size_t i) {
    bool type = false;
    for (size_t k = begin; k < i; ++k) {
        if (s.is(k, "namespace") || (s.is(k, "extern") && k + 2 == i)) return Brace::SPACE;
        if (s.is(k, "enum") || s.is(k, "=")) return Brace::OTHER;
        type = type || is_one_of(s, k, {"class", "struct", "union"});
        k = past_bracket(s, k, i);
    }
    if (!function_name(s, begin, i).empty()) return Brace::FUNCTION;
    return type ? Brace::CLASS : Brace::OTHER;
}

/* The declarations from token i to end, which are those of a namespace or of a class. */
void read_scope(Sides &d, size_t i, size_t end, bool member) {
    const Source &s = d.source;
    for (size_t begin = i; i < end; ++i) {
        if (s.is(i, ";")) {
            declare(d, begin, i, member);
            begin = i + 1;
        }
        if (s.is(i, ":") && is_one_of(s, i - 1, {"public", "private", "protected"})) begin = i + 1;
        if (s.is(i, "(") || s.is(i, "[")) i = past_bracket(s, i, end);
        if (!s.is(i, "{") || s.partner(i) == NONE) continue;
        const Brace kind = brace_kind(s, begin, i);
        if (kind == Brace::FUNCTION) declare(d, begin, i, member);
        if (kind == Brace::SPACE || kind == Brace::CLASS)
            read_scope(d, i + 1, s.partner(i), kind == Brace::CLASS);
        i = s.partner(i);
        if (kind == Brace::FUNCTION || kind == Brace::SPACE) begin = i + 1;
    }
}

bool begins_expression(const Source &s, size_t i) {
    return is_one_of(s, i, {"return", "else", "do", "case", "throw", "and", "or", "not"});
}

/* Whether the function has a variable, a parameter or a type of this name. */
bool declares(const Source &s, const Function &f, const std::string &name) {
    for (size_t i = f.begin + 1; i < f.close; ++i) {
        if (!s.is_name(i) || s.word(i) != name) continue;
        const bool parameter = i < f.open && (s.is(i - 1, "*") || s.is(i - 1, "&"));
        const bool typed = (s.is_name(i - 1) || s.is(i - 1, ">")) && !begins_expression(s, i - 1);
        if (parameter || (typed && i > f.begin && s.word(i) != f.name)) return true;
    }
    return false;
}

bool is_call(const Source &s, size_t i) {
    if (!s.is_name(i) || is_one_of(s, i - 1, {".", "->", "::"})) return false;
    const size_t list = s.is(i + 1, "<") ? s.close_angle(i + 1) : i;
    return list != NONE && s.is(list + 1, "(");
}

/* What belongs to the C and C++ libraries of the host, as beginners call it in kernels. */
bool is_of_host_library(const Source &s, size_t i) {
    if (is_one_of(s, i, {"cout", "cerr", "cin"})) return s.is(i + 1, "<") || s.is(i + 1, ">");
    return is_call(s, i) &&
           is_one_of(s, i,
                     {"rand", "srand", "exit", "puts", "putchar", "fprintf", "sprintf", "snprintf",
                      "scanf", "getenv", "fopen", "time", "usleep", "sleep"});
}

/* [=] __device__ (int i) { } in a function of the host: its body is the device's. */
size_t over_device_lambda(const Source &s, size_t i, size_t end) {
    if (!s.is(i, "]") || !(s.is(i + 1, "__device__") || s.is(i + 2, "__device__"))) return i;
    while (i < end && !s.is(i, "{")) ++i;
    return past_bracket(s, i, end);
}

void check_function(Sides &d, const Function &f) {
    const Source &s = d.source;
    if (f.device && f.host) return; /* it may ask where it runs */
    for (size_t i = f.open + 1; i < f.close; ++i) {
        i = over_device_lambda(s, i, f.close);
        if (s.of_system(i)) continue; /* a macro of a header */
        if (f.device && is_of_host_library(s, i)) {
            std::cerr << s.where(i) << ": error: " << s.word(i)
                      << " runs on the host alone: no kernel and no __device__ function has it\n";
            ++d.errors;
            continue;
        }
        const auto found = is_call(s, i) ? d.names.find(s.word(i)) : d.names.end();
        if (found == d.names.end() || found->second.other) continue;
        const Callable &called = found->second;
        if ((f.device ? called.by_device : called.by_host) || declares(s, f, found->first))
            continue;
        if (s.is_name(i - 1) && !begins_expression(s, i - 1)) continue;
        std::cerr << s.where(i) << ": error: " << found->first
                  << (f.device
                          ? " is a function of the host, and a kernel or a __device__ function "
                            "calls it: write __host__ __device__ before it\n"
                          : " is a __device__ function, and a function of the host calls it: "
                            "write __host__ __device__ before it\n");
        ++d.errors;
    }
}

} /* namespace */

int check_sides(const Source &source) {
    Sides d(source);
    read_scope(d, 0, source.count(), false);
    for (const Function &f : d.functions) check_function(d, f);
    return d.errors;
}

} /* namespace rewriter */
