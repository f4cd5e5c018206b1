/* hcc's rewriter: makes C++ for hostcuda of preprocessed CUDA C++. It changes
 * - launches: k<<<grid, block, shared, stream>>>(x) becomes
 *   hostcuda::kernel_of(k, "k").on(grid, block, shared, stream)(x). Where k is a template, or has
 *   several declarations, a helper beside each declaration lets the compiler find from the
 *   arguments which one is meant, as in a call;
 * - extern __shared__ T s[]: a pointer to the block's dynamic shared memory;
 * - with AddressSanitizer, __shared__ T s[N]: the same array with a fence around it;
 * - __global__, __device__, __host__, __noinline__, #pragma unroll: what g++ and clang++ take.
 * All else stays as it is, and every line keeps its number. */
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <sstream>

#include "missing.h"
#include "preprocessed.h"
#include "sides.h"

namespace rewriter {
namespace {

struct Declaration { /* of a kernel */
    size_t begin;    /* its first token */
    size_t name, open, close;
};

struct Rewriter {
    Source &source;
    std::map<std::string, std::vector<Declaration>> kernels;
    std::vector<std::pair<size_t, size_t>> bodies; /* of kernels */
    std::set<size_t> declared;                     /* tokens that name a kernel in a declaration */
    std::set<std::string> shared_of_file;          /* extern __shared__ outside of functions */
    int errors;
    bool fences; /* around shared memory, for AddressSanitizer */

    Rewriter(Source &s, bool with_fences) : source(s), errors(0), fences(with_fences) {}

    void error(size_t i, const std::string &what) {
        std::cerr << source.where(i) << ": error: " << what << '\n';
        ++errors;
    }
};

bool ends_statement(const Source &s, size_t i) {
    return s.is(i, ";") || s.is(i, "{") || s.is(i, "}");
}

/* The first token of the declaration that token i is in. */
size_t declaration_begin(const Source &s, size_t i) {
    while (i > 0 && !ends_statement(s, i - 1)) {
        --i;
        const size_t open = s.is(i, ">") ? s.open_angle(i) : s.partner(i);
        if (open != NONE && open < i) i = open;
    }
    return i;
}

/* ---- kernels --------------------------------------------------------------------------------- */

/* From __global__ on: the name of the kernel, the token before its parameters. */
size_t kernel_name(const Source &s, size_t i) {
    for (++i; i < s.count() && !ends_statement(s, i); ++i) {
        const bool attribute = s.is(i, "__attribute__") || s.is(i, "alignas") || s.is(i, "__asm__");
        if (attribute && s.partner(i + 1) != NONE)
            i = s.partner(i + 1);
        else if (s.is_name(i) && (s.is(i + 1, "(") || s.is(i + 1, "<")))
            return i;
    }
    return NONE;
}

void find_kernel(Rewriter &r, size_t global) {
    Source &s = r.source;
    s.replace(s.token(global).begin, s.token(global).end, "__attribute__((unused))");
    Declaration d;
    d.begin = declaration_begin(s, global);
    d.name = kernel_name(s, global);
    if (d.name == NONE) return; /* the compiler says what is wrong with it */
    r.declared.insert(d.name);
    d.open = d.name + 1;
    const bool specialised = s.is(d.open, "<");
    if (specialised) d.open = s.close_angle(d.open) + 1;
    d.close = s.partner(d.open);
    if (!s.is(d.open, "(") || d.close == NONE) return;
    if (!s.is(d.name - 1, "void")) r.error(d.name, "a kernel returns void: " + s.word(d.name));
    if (s.is(d.close + 1, "{") && s.partner(d.close + 1) != NONE)
        r.bodies.push_back(std::make_pair(d.close + 1, s.partner(d.close + 1)));
    if (!specialised) r.kernels[s.word(d.name)].push_back(d);
}

bool is_template(const Source &s, const Declaration &d) {
    return s.is(d.begin, "template") && s.is(d.begin + 1, "<") && !s.is(d.begin + 2, ">");
}

/* The parameters in one line, without default arguments. */
std::string parameters(const Source &s, const Declaration &d) {
    std::string all;
    size_t from = d.open + 1;
    bool defaults = false;
    for (size_t i = from; i <= d.close; ++i) {
        if (i == d.close || s.is(i, ",")) {
            if (!defaults) all += s.in_one_line(from, i);
            if (i != d.close) all += ", ";
            from = i + 1;
            defaults = false;
        } else if (s.is(i, "=") && !defaults) {
            all += s.in_one_line(from, i);
            defaults = true;
        } else {
            const size_t close = s.is(i, "<") ? s.close_angle(i) : s.partner(i);
            if (close != NONE && close > i && close < d.close) i = close;
        }
    }
    return all;
}

/* Whether the arguments of a launch tell which kernel of that name is meant. */
bool chosen_by_arguments(const Rewriter &r, const std::string &name) {
    const auto found = r.kernels.find(name);
    if (found == r.kernels.end()) return false;
    for (const Declaration &d : found->second)
        if (is_template(r.source, d)) return true;
    return found->second.size() > 1;
}

/* Beside each declaration: a function with the same parameters that returns a pointer to such a
 * kernel. It is never called. */
void declare_types(Rewriter &r) {
    Source &s = r.source;
    for (const auto &kernel : r.kernels) {
        if (!chosen_by_arguments(r, kernel.first)) continue;
        for (const Declaration &d : kernel.second) {
            const std::string list = parameters(s, d);
            std::string what = "auto hostcuda_type_of_" + kernel.first + "(" + list +
                               ") -> void (*)(" + list + "); ";
            if (is_template(s, d))
                what = s.in_one_line(d.begin, s.close_angle(d.begin + 1) + 1) + " " + what;
            s.insert(s.token(d.begin).begin, what);
        }
    }
}

/* using a::k; brings the helper along. */
void extend_using(Rewriter &r, size_t i) {
    Source &s = r.source;
    size_t end = i + 1;
    while (end < s.count() && !ends_statement(s, end)) ++end;
    if (!s.is(end, ";") || !s.is(end - 2, "::") || !chosen_by_arguments(r, s.word(end - 1))) return;
    s.insert(s.token(end).end,
             " " + s.in_one_line(i, end - 1) + "hostcuda_type_of_" + s.word(end - 1) + ";");
}

/* ---- launches -------------------------------------------------------------------------------- */

bool is_keyword(const Source &s, size_t i) {
    static const char *const words[] = {"return", "else",  "do",       "case",     "throw",
                                        "if",     "while", "for",      "switch",   "and",
                                        "or",     "not",   "co_yield", "co_return"};
    for (const char *word : words)
        if (s.is(i, word)) return true;
    return false;
}

/* The name before a template argument list or the call or index that ends at i; or the bracket. */
size_t before_bracket(const Source &s, size_t i) {
    if (s.is_name(i)) return i;
    if (s.is(i, ">")) {
        const size_t open = s.open_angle(i);
        return open != NONE && open > 0 && s.is_name(open - 1) ? open - 1 : NONE;
    }
    const size_t open = s.partner(i);
    if (open == NONE || open == 0 || open > i) return open;
    const bool of_name = s.is_name(open - 1) && !is_keyword(s, open - 1);
    const bool of_bracket = s.is(open - 1, ")") || s.is(open - 1, "]");
    return of_name || of_bracket ? before_bracket(s, open - 1) : open;
}

/* The first token of the expression before <<<, which ends at token i. */
size_t kernel_begin(const Source &s, size_t i) {
    for (;;) {
        if (s.is(i, ">") || s.is(i, ")") || s.is(i, "]")) i = before_bracket(s, i);
        if (i == NONE || i == 0) return i;
        if (s.is(i - 1, "template")) --i;
        if (s.is(i - 1, "::")) {
            --i;
            const bool name = i > 0 && s.is_name(i - 1) && !is_keyword(s, i - 1);
            const bool list = i > 0 && s.is(i - 1, ">") && before_bracket(s, i - 1) != NONE;
            if (!name && !list) return i;
            --i;
        } else if (i > 1 && (s.is(i - 1, ".") || s.is(i - 1, "->"))) {
            i -= 2;
        } else {
            return i;
        }
    }
}

/* Of the >>> that ends the configuration, the first; i is the token after <<<. A > may also end a
 * template argument list. */
size_t configuration_end(const Source &s, size_t i) {
    size_t lists = 0, otherwise = NONE;
    for (; i < s.count() && !s.is(i, ";"); ++i) {
        if (s.is(i, ")") || s.is(i, "]") || s.is(i, "}")) break;
        if (s.partner(i) != NONE) i = s.partner(i);
        if (s.is(i, "<") && s.is_name(i - 1)) ++lists;
        if (!s.is(i, ">")) continue;
        size_t run = 1;
        while (s.is(i + run, ">")) ++run;
        if (run >= 3 && s.is(i + run, "(")) {
            if (run - 3 == lists) return i + run - 3;
            if (otherwise == NONE) otherwise = i + run - 3;
        }
        lists -= run < lists ? run : lists;
        i += run - 1;
    }
    return otherwise;
}

std::string label(const Source &s, size_t first, size_t last) {
    const std::string text = s.in_one_line(first, last);
    const bool plain = text.find_first_of("\"\\") == std::string::npos;
    return plain && text.size() < 32 ? text : "kernel";
}

/* A lambda among the arguments cannot be written twice. */
bool has_lambda(const Source &s, size_t open) {
    for (size_t i = open + 1; i < s.partner(open); ++i)
        if (s.is(i, "[") && (s.is(i - 1, "(") || s.is(i - 1, ","))) return true;
    return false;
}

/* decltype(a::hostcuda_type_of_k<int>(x, y)) for the kernel a::k<int> and the arguments x, y. */
std::string type_by_arguments(const Source &s, size_t first, size_t name, size_t last,
                              const std::string &arguments) {
    return "decltype(" + s.in_one_line(first, name) + "hostcuda_type_of_" +
           s.in_one_line(name, last) + arguments + ")";
}

/* The bracket's end for one that begins at token i, else i. */
size_t over_bracket(const Source &s, size_t i, size_t before) {
    const size_t close = s.is(i, "<") ? s.close_angle(i) : s.partner(i);
    return close != NONE && close > i && close < before ? close : i;
}

size_t count_arguments(const Source &s, size_t open) {
    const size_t close = s.partner(open);
    size_t count = close > open + 1;
    for (size_t i = open + 1; i < close; ++i) {
        i = over_bracket(s, i, close);
        count += s.is(i, ",");
    }
    return count;
}

/* The default arguments of all parameters behind the first `given`, each after a comma; "" if one
 * of them has none. */
std::string defaults_behind(const Source &s, const Declaration &d, size_t given) {
    std::string all;
    size_t number = 0, from = NONE; /* the first token of a default argument */
    for (size_t i = d.open + 1; i <= d.close && d.close > d.open + 1; ++i) {
        if (i == d.close || s.is(i, ",")) {
            if (number >= given && from == NONE) return "";
            if (number >= given) all += ", " + s.in_one_line(from, i);
            ++number;
            from = NONE;
        } else if (s.is(i, "=") && from == NONE) {
            from = i + 1;
        } else {
            i = over_bracket(s, i, d.close);
        }
    }
    return given == 0 && !all.empty() ? all.substr(2) : all;
}

/* What a launch with the arguments at `open` leaves to the defaults of the kernel: a pointer to a
 * function, through which hostcuda calls it, has none. */
std::string arguments_left_out(const Rewriter &r, const std::string &name, size_t open) {
    const auto found = r.kernels.find(name);
    if (found == r.kernels.end()) return "";
    const size_t given = count_arguments(r.source, open);
    for (const Declaration &d : found->second)
        if (count_arguments(r.source, d.open) == given) return ""; /* that one is meant */
    for (const Declaration &d : found->second) {
        const std::string rest = defaults_behind(r.source, d, given);
        if (!rest.empty()) return rest;
    }
    return "";
}

void rewrite_launch(Rewriter &r, size_t at) {
    Source &s = r.source;
    for (const auto &body : r.bodies)
        if (at > body.first && at < body.second)
            return r.error(at, "a kernel launches a kernel: hostcuda has no dynamic parallelism");
    const bool something = at > 0 && (s.is_name(at - 1) || s.is(at - 1, ">") || s.is(at - 1, ")") ||
                                      s.is(at - 1, "]"));
    const size_t first = something ? kernel_begin(s, at - 1) : NONE;
    if (first == NONE) return r.error(at, "there is no kernel before <<<");
    const size_t end = configuration_end(s, at + 3);
    if (end == NONE)
        return r.error(at, "no >>> and kernel arguments in parentheses follow this <<<");
    size_t name = at - 1;
    if (s.is(name, ">")) name = before_bracket(s, name);
    std::string before = " ::hostcuda::kernel_of(", after = ", \"" + label(s, name, at) + "\").on(";
    std::string close = ")";
    const size_t open = end + 3;
    const std::string rest = s.is_name(name) ? arguments_left_out(r, s.word(name), open) : "";
    if (!rest.empty()) s.insert(s.token(s.partner(open)).begin, rest);
    if (s.is_name(name) && chosen_by_arguments(r, s.word(name))) {
        std::string arguments = s.in_one_line(open, s.partner(open)) + rest + ")";
        if (has_lambda(s, open)) {
            arguments = "(hostcuda_arguments...)";
            before = " [&](auto &&...hostcuda_arguments) {" + before;
            close += arguments + "; }";
        }
        before += "static_cast<" + type_by_arguments(s, first, name, at, arguments) + ">(";
        after = ")" + after;
    }
    s.insert(s.token(first).begin, before);
    s.replace(s.token(at).begin, s.token(at + 2).end, after);
    s.replace(s.token(end).begin, s.token(end + 2).end, close);
}

bool is_launch(const Source &s, size_t i) {
    return s.is(i, "<") && s.is(i + 1, "<") && s.is(i + 2, "<") && !s.is(i - 1, "operator") &&
           s.token(i).end == s.token(i + 1).begin;
}

/* ---- shared memory --------------------------------------------------------------------------- */

/* Whether token i is in no function: all braces around it are those of namespaces. */
bool outside_functions(const Source &s, size_t i) {
    while (i-- > 0) {
        if (s.is(i, "}") && s.partner(i) != NONE) {
            i = s.partner(i);
            continue;
        }
        if (!s.is(i, "{")) continue;
        const size_t begin = declaration_begin(s, i);
        const bool linkage = s.is(begin, "extern") && begin + 2 == i;
        const bool space = s.is(begin, "namespace") || s.is(begin + 1, "namespace");
        if (!linkage && !space) return false;
    }
    return true;
}

bool is_side(const Source &s, size_t i) { return s.is(i, "__device__") || s.is(i, "__host__"); }

/* extern __shared__ T name[]; is here extern static thread_local T name[]; in any order. */
void rewrite_shared(Rewriter &r, size_t first) {
    Source &s = r.source;
    size_t end = first, name = NONE;
    std::string type;
    for (; end < s.count() && !ends_statement(s, end) && name == NONE; ++end) {
        const bool attribute = s.is(end, "__attribute__") || s.is(end, "alignas");
        if (attribute && s.partner(end + 1) != NONE)
            end = s.partner(end + 1);
        else if (s.is(end + 1, "[") && s.is(end + 2, "]"))
            name = end;
        else if (!s.is(end, "extern") && !s.is(end, "static") && !s.is(end, "thread_local") &&
                 !is_side(s, end))
            type += s.word(end) + " ";
    }
    const size_t rest = name == NONE ? end : name + 3;
    size_t last = rest;
    while (last < s.count() && !ends_statement(s, last)) ++last;
    const size_t bounds = s.is(rest, "[") ? last : rest;
    if (name == NONE || !s.is(last, ";") ||
        (rest != last && !s.is(rest, "[") && !s.is(rest, "__attribute__")))
        return r.error(first, "extern __shared__ declares one array without a length: extern "
                              "__shared__ float name[];");
    const std::string array = s.in_one_line(rest, bounds), word = s.word(name);
    std::string what = type + "(*const " + word + ")" + array +
                       " __attribute__((unused)) = " + "static_cast<" + type + "(*)" + array +
                       ">(::hostcuda::dynamic_shared())";
    if (array.empty())
        what = type + "*const " + word + " __attribute__((unused)) = static_cast<" + type +
               "*>(::hostcuda::dynamic_shared())";
    if (outside_functions(s, first)) {
        const bool again = !r.shared_of_file.insert(word).second;
        what = "static const ::hostcuda::DynamicShared<" + type + array + "> " + word +
               " __attribute__((unused))";
        if (again) what = "";
    }
    s.replace_tokens(first, last - 1, what);
}

/* The name that a declarator declares, from token i on; NONE for one in parentheses. */
size_t declared_name(const Source &s, size_t i, size_t end) {
    for (; i < end; ++i) {
        if (s.is_name(i) && (s.is(i + 1, "[") || s.is(i + 1, ",") || s.is(i + 1, ";"))) return i;
        if (s.is(i, "=") || (s.is(i, "(") && !s.is(i - 1, "__attribute__"))) return NONE;
        i = over_bracket(s, i, end);
    }
    return NONE;
}

/* T a[2], b; with AddressSanitizer: the members of a struct with a fence around each, and
 * references to them. What is declared in another form stays as it is. */
void fence_shared(Rewriter &r, size_t first, size_t begin) {
    Source &s = r.source;
    size_t end = begin;
    while (end < s.count() && !ends_statement(s, end)) ++end;
    size_t from = begin, name = declared_name(s, begin, end);
    if (name == NONE || !s.is(end, ";") || outside_functions(s, first)) return;
    size_t type = begin; /* ends here */
    while (type < name && !s.is(type, "*")) type = over_bracket(s, type, name) + 1;
    const std::string of = s.in_one_line(begin, type), all = "hostcuda_fenced_" + s.word(name);
    std::string members = "alignas(8) ::hostcuda::Fence hostcuda_first; ", references;
    size_t number = 0;
    for (size_t i = begin; i <= end; ++i) {
        if (i < end) i = over_bracket(s, i, end);
        if (i < end && !s.is(i, ",")) continue;
        name = declared_name(s, from, i);
        if (name == NONE) return;
        const std::string word = s.word(name);
        if (number++) members += of + " ";
        members += s.in_one_line(from, i) + "; ::hostcuda::Fence hostcuda_fence_" +
                   std::to_string(number) + "; ";
        references += " auto &" + word + " __attribute__((unused)) = " + all + "." + word + ";";
        from = i + 1;
    }
    s.replace_tokens(first, end,
                     "static thread_local struct { " + members + "} " + all + ";" + references);
}

/* ---- the rest -------------------------------------------------------------------------------- */

/* A name that is more than a kernel's: of a variable or of another function. */
bool other_use(const Source &s, size_t i) {
    const bool type = s.is_name(i - 1) && !is_keyword(s, i - 1);
    return type || s.is(i - 1, "*") || s.is(i - 1, "&") || s.is(i - 1, ">");
}

/* A kernel that is called like a function would run on the host, as one thread. */
void check_calls(Rewriter &r) {
    const Source &s = r.source;
    std::map<std::string, std::vector<size_t>> calls;
    std::set<std::string> others;
    for (size_t i = 1; i < s.count(); ++i) {
        if (!s.is_name(i) || r.declared.count(i) || !r.kernels.count(s.word(i))) continue;
        const bool member = s.is(i - 1, ".") || s.is(i - 1, "->") || s.is(i - 1, "::");
        if (other_use(s, i)) others.insert(s.word(i));
        if (s.is(i + 1, "(") && !member) calls[s.word(i)].push_back(i);
    }
    for (const auto &call : calls)
        for (size_t i : call.second)
            if (!others.count(call.first))
                r.error(i, "the kernel " + call.first + " is called without a configuration; a " +
                               "launch is " + call.first + "<<<grid, block>>>(...)");
}

/* [=] __device__ (int i) { }: neither compiler takes an attribute there. */
void rewrite_side(Source &s, size_t i) {
    size_t before = i - 1;
    while (is_side(s, before)) --before;
    const bool lambda = s.is(before, "]");
    s.replace(s.token(i).begin, s.token(i).end, lambda ? "" : "__attribute__((unused))");
}

void rewrite_words(Rewriter &r) {
    Source &s = r.source;
    for (size_t i = 0; i < s.count(); ++i) {
        if (s.is(i, "__noinline__") && !s.is(i - 1, "(") && !s.is(i - 1, ","))
            s.replace(s.token(i).begin, s.token(i).end, "__attribute__((noinline))");
        if (s.is(i, "using")) extend_using(r, i);
        if (is_side(s, i)) rewrite_side(s, i);
        if (is_launch(s, i)) {
            rewrite_launch(r, i);
            i += 2;
        }
        if (!s.is(i, "static") || !s.is(i + 1, "thread_local")) continue;
        const size_t begin = declaration_begin(s, i);
        bool outer = false, twice = s.is(i + 2, "static");
        for (size_t k = begin; k < s.count() && !ends_statement(s, k); ++k)
            outer = outer || s.is(k, "extern");
        twice = twice || (i > begin && s.is(i - 1, "static"));
        if (outer)
            rewrite_shared(r, begin);
        else if (r.fences && (i == begin || (i == begin + 1 && s.is(begin, "static"))))
            fence_shared(r, begin, i + 2 + s.is(i + 2, "static"));
        else if (twice)
            s.replace(s.token(i).begin, s.token(i).end, "");
    }
    for (const Directive &d : s.lines()) {
        const std::string line = s.line(d);
        if (line.compare(0, 14, "#pragma unroll") == 0 ||
            line.compare(0, 16, "#pragma nounroll") == 0)
            s.replace(d.begin, d.end, "");
    }
}

std::string read_all(const char *name) {
    std::ifstream file(name, std::ios::binary);
    if (!file) {
        std::cerr << "hcc: cannot read " << name << '\n';
        exit(1);
    }
    std::ostringstream all;
    all << file.rdbuf();
    return all.str();
}

/* Whether an asm holds instructions of a GPU: their types and registers are not those of a CPU. */
bool is_ptx(const Source &s, size_t i) {
    const size_t open = s.is(i + 1, "(") ? i + 1 : i + 2; /* asm volatile ( */
    if (!s.is(open, "(") || s.partner(open) == NONE) return false;
    const std::string text = s.in_one_line(open, s.partner(open));
    for (const char *part : {"%%", ".u32", ".s32", ".b32", ".f32", ".u64", ".s64", ".b64", ".f64"})
        if (text.find(part) != std::string::npos) return true;
    return false;
}

/* Says of each name that hostcuda does not have, once, where it is used. */
void report_missing(const Source &s) {
    std::set<std::string> said;
    for (size_t i = 0; i < s.count(); ++i) {
        if (!s.is_name(i) || s.of_system(i)) continue;
        const bool ptx = (s.is(i, "asm") || s.is(i, "__asm__")) && is_ptx(s, i);
        const std::string what = ptx ? NO_PTX : missing_because(s.word(i));
        if (what.empty() || !said.insert(s.word(i)).second) continue;
        std::cerr << s.where(i) << ": note: " << s.word(i) << ": " << what << '\n';
    }
}

int rewrite(const char *in, const char *out, bool fences) {
    Source source(read_all(in));
    Rewriter r(source, fences);
    for (size_t i = 0; i < source.count(); ++i)
        if (source.is(i, "__global__")) find_kernel(r, i);
    declare_types(r);
    rewrite_words(r);
    check_calls(r);
    r.errors += check_sides(source);
    if (r.errors) return 1;
    std::ofstream file(out, std::ios::binary);
    file << source.result();
    file.flush();
    if (file) return 0;
    std::cerr << "hcc: cannot write " << out << '\n';
    return 1;
}

} /* namespace */
} /* namespace rewriter */

/* rewriter PREPROCESSED RESULT      rewrites
 * rewriter --fences PREPROCESSED RESULT    for AddressSanitizer
 * rewriter --missing FILE           tells what of it hostcuda does not have
 * rewriter --header WHERE NAME      the same of a header that was not found, at WHERE */
int main(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[1], "--header") == 0) {
        const std::string what = rewriter::missing_because(argv[3]);
        if (!what.empty()) std::cerr << argv[2] << ": note: " << argv[3] << ": " << what << '\n';
        return 0;
    }
    if (argc == 3 && strcmp(argv[1], "--missing") == 0) {
        rewriter::report_missing(rewriter::Source(rewriter::read_all(argv[2])));
        return 0;
    }
    const bool fences = argc == 4 && strcmp(argv[1], "--fences") == 0;
    if (argc == 3 || fences) return rewriter::rewrite(argv[argc - 2], argv[argc - 1], fences);
    fprintf(stderr, "usage: rewriter [--fences] PREPROCESSED RESULT\n");
    return 2;
}
