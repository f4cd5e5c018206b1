/* hcc's rewriter: preprocessed source as tokens, with the line that each came from, which bracket
 * closes which, and the changes to be made to the text. */
#ifndef HOSTCUDA_REWRITER_PREPROCESSED_H
#define HOSTCUDA_REWRITER_PREPROCESSED_H

#include <cstddef>
#include <string>
#include <vector>

namespace rewriter {

const size_t NONE = static_cast<size_t>(-1);

enum class Kind {
    NAME,
    NUMBER,
    TEXT, /* strings and characters */
    SIGN  /* one character; of the longer ones only :: -> <= >= */
};

struct Token {
    Kind kind;
    size_t begin, end; /* in the text */
    size_t partner;    /* of a bracket: the other one */
};

/* A line that begins with #: a #pragma, or one that says where the next line is from. */
struct Directive {
    size_t begin, end; /* without the line's end */
    size_t line;       /* of the line after it */
    std::string file;  /* as it is quoted */
    bool system;       /* of a system header, says the preprocessor */
};

class Source {
  public:
    explicit Source(const std::string &given);

    size_t count() const { return tokens.size(); }

    const Token &token(size_t i) const { return tokens[i]; }

    /* The lines that begin with #. */
    const std::vector<Directive> &lines() const { return directives; }

    std::string line(const Directive &d) const { return text.substr(d.begin, d.end - d.begin); }

    /* All of these may be asked about tokens that are not there. */
    bool is(size_t i, const char *what) const;

    bool is_name(size_t i) const { return i < tokens.size() && tokens[i].kind == Kind::NAME; }

    std::string word(size_t i) const;

    /* The bracket that belongs to this one; NONE if it has none. */
    size_t partner(size_t i) const { return i < tokens.size() ? tokens[i].partner : NONE; }

    /* Of < the > that ends a template argument list, and the other way round; else NONE. */
    size_t close_angle(size_t i) const;
    size_t open_angle(size_t i) const;

    /* The text from token first up to token last, in one line. */
    std::string in_one_line(size_t first, size_t last) const;
    /* "file.cu:12" */
    std::string where(size_t i) const;
    std::string file_at(size_t position) const;
    bool of_system(size_t i) const;
    size_t line_at(size_t position) const;

    /* Changes: they do not overlap, and are made by result(). */
    void insert(size_t position, const std::string &what) { replace(position, position, what); }

    void replace(size_t begin, size_t end, const std::string &what);
    /* Replaces whole tokens by one line; the lines after it keep their numbers. */
    void replace_tokens(size_t first, size_t last, const std::string &what);
    std::string result() const;

  private:
    struct Change {
        size_t begin, end;
        std::string what;
    };

    std::string text;
    std::vector<Token> tokens;
    std::vector<Directive> directives;
    std::vector<Change> changes;

    size_t read_directive(size_t at);
    size_t read_quoted(size_t at);
    size_t read_raw(size_t at);
    size_t read_name(size_t at);
    size_t read_number(size_t at) const;
    size_t skip_comment(size_t at) const;
    void read();
    void match_brackets();
    const Directive *directive_before(size_t position) const;
};

} /* namespace rewriter */

#endif
