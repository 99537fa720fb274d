#include <algorithm>
#include <optional>
#include <vector>

#include "src/base/sha256.h"
#include "src/data/tokenizers/chat_families.h"

namespace trainyard {
namespace {

constexpr size_t kDigestCharacters = 16;

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

struct TemplateToken {
  bool literal = false;
  std::string text;
};

/// Reads a literal after its opening quote, with the escapes of Jinja.
std::string take_literal(std::string_view& rest, char quote) {
  std::string text;
  while (!rest.empty() && rest[0] != quote) {
    char c = rest[0];
    rest.remove_prefix(1);
    if (c == '\\' && !rest.empty()) {
      c = rest[0];
      rest.remove_prefix(1);
      if (c == 'n') {
        c = '\n';
      } else if (c == 't') {
        c = '\t';
      } else if (c == 'r') {
        c = '\r';
      } else if (c != '\\' && c != '\'' && c != '"') {
        text += '\\';
      }
    }
    text += c;
  }
  if (!rest.empty()) rest.remove_prefix(1);
  return text;
}

/// Reads the inside of a tag until `end`, and removes it.
std::vector<TemplateToken> take_tokens(std::string_view& rest, std::string_view end) {
  std::vector<TemplateToken> tokens;
  while (!rest.empty() && !rest.starts_with(end)) {
    const char c = rest[0];
    if (c == '\'' || c == '"') {
      rest.remove_prefix(1);
      tokens.push_back({true, take_literal(rest, c)});
    } else if (is_blank(c)) {
      rest.remove_prefix(1);
    } else {
      size_t size = 1;
      while (is_name(c) && size < rest.size() && is_name(rest[size])) ++size;
      tokens.push_back({false, std::string(rest.substr(0, size))});
      rest.remove_prefix(size);
    }
  }
  rest.remove_prefix(std::min(rest.size(), end.size()));
  return tokens;
}

bool is_text(const TemplateToken& token, std::string_view text) {
  return !token.literal && token.text == text;
}

/// Joins 'a' + 'b', unless a filter or an index binds more tightly to the second literal.
bool join_literals(std::vector<TemplateToken>& tokens, size_t i) {
  if (i + 2 >= tokens.size() || !tokens[i].literal || !is_text(tokens[i + 1], "+") ||
      !tokens[i + 2].literal) {
    return false;
  }
  for (const char* tight : {"|", ".", "[", "*", "%", "/"}) {
    if (i + 3 < tokens.size() && is_text(tokens[i + 3], tight)) return false;
    if (i > 0 && is_text(tokens[i - 1], tight)) return false;
  }
  tokens[i].text += tokens[i + 2].text;
  const auto next = tokens.begin() + static_cast<std::ptrdiff_t>(i) + 1;
  tokens.erase(next, next + 2);
  return true;
}

/// Writes x['name'] as x.name.
bool write_member(std::vector<TemplateToken>& tokens, size_t i) {
  if (i == 0 || i + 2 >= tokens.size() || tokens[i - 1].literal ||
      !is_name(tokens[i - 1].text.back()) || !is_text(tokens[i], "[") || !tokens[i + 1].literal ||
      !is_text(tokens[i + 2], "]")) {
    return false;
  }
  tokens[i] = {false, "." + tokens[i + 1].text};
  const auto next = tokens.begin() + static_cast<std::ptrdiff_t>(i) + 1;
  tokens.erase(next, next + 2);
  return true;
}

void write_tag(std::vector<TemplateToken> tokens, std::string& out) {
  for (size_t i = 0; i < tokens.size();) {
    if (!join_literals(tokens, i) && !write_member(tokens, i)) ++i;
  }
  for (const TemplateToken& token : tokens) {
    if (token.literal) {
      out += '\'';
      for (const char c : token.text) {
        if (c == '\'' || c == '\\') out += '\\';
        out += c;
      }
      out += '\'';
    } else {
      if (!out.empty() && is_name(out.back()) && is_name(token.text[0])) out += ' ';
      out += token.text;
    }
  }
}

void remove_blanks_at_end(std::string& text) {
  while (!text.empty() && is_blank(text.back())) text.pop_back();
}
void skip_blanks(std::string_view& text) {
  while (!text.empty() && is_blank(text[0])) text.remove_prefix(1);
}

}  // namespace

std::string canonical_template(std::string_view text, bool compact) {
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  std::string out;
  while (!text.empty()) {
    const size_t begin = text.find('{');
    out += text.substr(0, begin);
    if (begin == std::string_view::npos) break;
    text.remove_prefix(begin);
    if (text.starts_with("{#")) {  // a comment; its dashes remove the blanks around it
      const size_t end = text.find("#}");
      const std::string_view comment = text.substr(0, end);
      if (compact && comment.starts_with("{#-")) remove_blanks_at_end(out);
      out += comment.starts_with("{#-") ? "{#-" : "{#";
      out += comment.ends_with('-') ? "-#}" : "#}";
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + 2);
      if (compact && comment.ends_with('-')) skip_blanks(text);
    } else if (text.starts_with("{{") || text.starts_with("{%")) {
      const bool value = text.starts_with("{{");
      const std::string_view opening = text.substr(0, 2);
      text.remove_prefix(2);
      const std::vector<TemplateToken> tokens = take_tokens(text, value ? "}}" : "%}");
      if (compact && !tokens.empty()) {
        if (is_text(tokens.front(), "-")) remove_blanks_at_end(out);
        if (is_text(tokens.back(), "-")) skip_blanks(text);
      }
      out += opening;
      write_tag(tokens, out);
      out += value ? "}}" : "%}";
    } else {
      out += '{';
      text.remove_prefix(1);
    }
  }
  return out;
}

std::string template_digest(std::string_view text, bool compact) {
  return sha256_hex(canonical_template(text, compact)).substr(0, kDigestCharacters);
}

}  // namespace trainyard
