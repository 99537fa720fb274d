#include "src/data/table/json_lines.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "src/base/text.h"
#include "src/base/unicode.h"
#include "src/data/files/text_files.h"
#include "src/data/limits.h"
#include "src/data/problems.h"
#include "src/data/table/column_match.h"

namespace trainyard {
namespace {

constexpr size_t kReadBytes = size_t{1} << 20;

std::string line_place(const std::string& what, int64_t line) {
  return what + ": line " + std::to_string(line);
}

/// Passes the members of one object to `visit`. Nested values are parsed but not stored.
class MemberHandler final : public nlohmann::json_sax<nlohmann::json> {
 public:
  using Visit = std::function<Status(const std::string&, const JsonMember&)>;
  MemberHandler(const std::string& place, const Visit& visit) : place_(place), visit_(visit) {}
  std::optional<Error> error;

  bool start_object(size_t) override { return open(/*object=*/true); }
  bool start_array(size_t) override { return open(/*object=*/false); }
  bool end_object() override {
    --depth_;
    return true;
  }
  bool end_array() override { return end_object(); }
  bool key(string_t& name) override {
    if (depth_ == 1) name_ = nfc(name);
    return true;
  }
  bool null() override { return member({JsonMember::Kind::kNull, {}}); }
  bool boolean(bool value) override { return scalar(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return scalar(std::to_string(value)); }
  bool number_unsigned(number_unsigned_t value) override { return scalar(std::to_string(value)); }
  bool number_float(number_float_t, const string_t& text) override { return scalar(text); }
  bool string(string_t& value) override { return member({JsonMember::Kind::kText, value}); }
  bool binary(binary_t&) override { return refuse("a binary value"); }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& e) override {
    // The exception's message is not shown, since it may contain raw bytes.
    const bool utf8 = std::string_view(e.what()).find("UTF-8") != std::string_view::npos;
    return refuse(std::string(utf8 ? "not UTF-8" : "not JSON") + " at byte " +
                  std::to_string(position) + ", expected an object such as {\"name\": 1}");
  }

 private:
  bool open(bool object) {
    if (depth_ == 0 && !object) return refuse_top();
    if (depth_ == 1 && !member({JsonMember::Kind::kNested, {}})) return false;
    ++depth_;
    return true;
  }
  bool scalar(std::string_view text) { return member({JsonMember::Kind::kScalar, text}); }
  bool member(const JsonMember& value) {
    if (depth_ == 0) return refuse_top();
    if (depth_ > 1) return true;
    Status s = visit_(name_, value);
    if (!s.ok()) error = std::move(s).error();
    return !error;
  }
  bool refuse_top() {
    return refuse("a value that is not in an object, expected an object such as {\"name\": 1}");
  }
  bool refuse(const std::string& why) {
    if (!error) error = dataset_error(place_, why);
    return false;
  }

  const std::string& place_;
  const Visit& visit_;
  int64_t depth_ = 0;
  std::string name_;
};

}  // namespace

LineReader::LineReader(ByteSource& source, std::string what)
    : source_(&source), what_(std::move(what)), buffer_(kReadBytes) {}

void LineReader::continue_with(ByteSource& source) {
  source_ = &source;
  begin_ = end_ = 0;
  eof_ = false;
}

Result<bool> LineReader::next(std::string_view& line) {
  size_t searched = begin_;
  for (;;) {
    const void* found = std::memchr(buffer_.data() + searched, '\n', end_ - searched);
    if (found != nullptr || (eof_ && begin_ < end_)) {
      const size_t end =
          found == nullptr ? end_
                           : static_cast<size_t>(static_cast<const char*>(found) - buffer_.data());
      line = {buffer_.data() + begin_, end - begin_};
      begin_ = std::min(end + 1, end_);
      ++line_;
      if (line_ == 1 && line.starts_with(kByteOrderMark)) {
        line.remove_prefix(kByteOrderMark.size());
      }
      if (line.ends_with('\r')) line.remove_suffix(1);
      return true;
    }
    if (eof_) return false;
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    searched = end_;
    if (end_ == buffer_.size()) {
      if (end_ >= kLineBytesMax) {
        return dataset_error(line_place(what_, line_ + 1),
                             "longer than " + human_bytes(int64_t{kLineBytesMax}));
      }
      buffer_.resize(2 * buffer_.size());
    }
    ASSIGN_OR_RETURN(const size_t n, source_->read(std::span(buffer_).subspan(end_)));
    end_ += n;
    eof_ = n == 0;
  }
}

Status visit_json_object(
    std::string_view line, const std::string& place,
    const std::function<Status(const std::string& name, const JsonMember& member)>& visit) {
  MemberHandler handler(place, visit);
  const bool ok = nlohmann::json::sax_parse(line.begin(), line.end(), &handler);
  if (handler.error) return *std::move(handler.error);
  TRAINYARD_CHECK(ok, "the JSON parser stopped without an error");
  return {};
}

JsonLinesTable::JsonLinesTable(ByteSource& source, std::string what, std::vector<std::string> names)
    : lines_(source, what),
      what_(std::move(what)),
      names_(std::move(names)),
      cells_(names_.size()),
      set_on_(names_.size()) {
  for (size_t i = 0; i < names_.size(); ++i) {
    columns_.emplace(names_[i], i);
    const auto [folded, is_new] = folded_.emplace(folded_name(names_[i]), i);
    if (!is_new) folded->second = kNoColumn;
  }
}

Result<size_t> JsonLinesTable::column_of(const std::string& name, const std::string& place) {
  const auto found = columns_.find(name);
  if (found != columns_.end()) return found->second;
  const auto alike = folded_.find(folded_name(name));
  if (alike != folded_.end() && alike->second != kNoColumn) {
    return columns_.emplace(name, alike->second).first->second;
  }
  if (name.empty() || name.size() > kNameBytesMax) {
    return dataset_error(place, "a member's name of " + std::to_string(name.size()) +
                                    " bytes, expected 1 to " + std::to_string(kNameBytesMax));
  }
  if (std::ssize(names_) == kColumnsMax) {
    return dataset_error(place, "more than " + std::to_string(kColumnsMax) + " different members");
  }
  columns_.emplace(name, names_.size());
  names_.push_back(name);
  cells_.emplace_back();
  set_on_.push_back(0);
  return names_.size() - 1;
}

Result<bool> JsonLinesTable::next(std::vector<std::string_view>& fields) {
  std::string_view line;
  do {
    ASSIGN_OR_RETURN(const bool more, lines_.next(line));
    if (!more) return false;
  } while (line.find_first_not_of(" \t") == line.npos);
  const std::string place = line_place(what_, lines_.line());
  for (std::string& cell : cells_) cell.clear();
  const auto take = [&](const std::string& name, const JsonMember& member) -> Status {
    ASSIGN_OR_RETURN(const size_t column, column_of(name, place));
    const auto refuse = [&](const char* why) {
      return dataset_error(place + ", member " + quoted_value(name), why);
    };
    if (member.kind == JsonMember::Kind::kNested) {
      return refuse("an object or a list, expected a number, text, true, false or null");
    }
    if (member.text.find('\0') != member.text.npos) return refuse("text with a zero byte");
    if (set_on_[column] == lines_.line()) return refuse("appears twice");
    set_on_[column] = lines_.line();
    cells_[column] = member.text;
    return {};
  };
  if (Status s = visit_json_object(line, place, take); !s.ok()) return std::move(s).error();
  fields.assign(cells_.begin(), cells_.end());
  return true;
}

}  // namespace trainyard
