// src/data/tokenizers/text_pieces.h: a text on its way to tokens: rewritten, cut into pieces, and,
// if wanted, with the place in the source that each byte comes from.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trainyard {

/// A text and the pieces of it that are left. Borrows the source.
class TextPieces {
 public:
  struct Range {
    size_t begin, end;
    size_t size() const { return end - begin; }
  };

  /// The whole source is one piece. `offset`: where the source begins in the text that the user
  /// gave. `track`: whether source_of() is asked later.
  TextPieces(std::string_view source, size_t offset, bool track)
      : text_(source),
        offset_(offset),
        first_(offset == 0),
        track_(track),
        ranges_{{0, source.size()}} {}
  /// A part of another text, which it borrows.
  TextPieces(const TextPieces& whole, Range part)
      : text_(whole.text_of(part)),
        offset_(whole.source_of(part.begin)),
        first_(whole.first_ && part.begin == 0),
        track_(whole.track_),
        ranges_{{0, part.size()}} {
    if (whole.origin_.empty()) return;
    const auto begin = whole.origin_.begin();
    origin_.assign(begin + static_cast<std::ptrdiff_t>(part.begin),
                   begin + static_cast<std::ptrdiff_t>(part.end));
  }
  TextPieces(const TextPieces&) = delete;
  TextPieces& operator=(const TextPieces&) = delete;

  std::string_view text() const { return text_; }
  std::string_view text_of(Range range) const { return text_.substr(range.begin, range.size()); }
  const std::vector<Range>& ranges() const { return ranges_; }
  /// Replaces the pieces by parts of them.
  void set_ranges(std::vector<Range> ranges) { ranges_ = std::move(ranges); }
  /// Returns true for the first piece of the text that the user gave.
  bool is_first(const Range& range) const { return first_ && &range == ranges_.data(); }
  /// Returns the offset in the user's text of what the byte at `at` stands for.
  size_t source_of(size_t at) const {
    if (origin_.empty()) return offset_ + std::min(at, text_.size());
    return at < origin_.size() ? origin_[at] : origin_.back() + 1;
  }

  /// The text that takes the place of the pieces.
  class Writer {
   public:
    explicit Writer(const TextPieces& from) : from_(from) {}
    /// Appends bytes that stand for the byte at `at` of the old text.
    void put(std::string_view bytes, size_t at) {
      text_ += bytes;
      if (from_.track_) {
        origin_.resize(text_.size(), static_cast<uint32_t>(from_.source_of(at)));
      }
    }
    /// Appends a part of the old text.
    void keep(size_t begin, size_t end) {
      text_ += from_.text_.substr(begin, end - begin);
      if (!from_.track_) return;
      for (; begin < end; ++begin) {
        origin_.push_back(static_cast<uint32_t>(from_.source_of(begin)));
      }
    }

    size_t size() const { return text_.size(); }
    /// Removes `suffix` from the end, as long as the text is longer than `size_min`.
    void drop_ends(std::string_view suffix, size_t size_min) {
      while (text_.size() > size_min && text_.ends_with(suffix)) {
        text_.resize(text_.size() - suffix.size());
      }
      if (from_.track_) origin_.resize(text_.size());
    }

   private:
    friend class TextPieces;
    const TextPieces& from_;
    std::string text_;
    std::vector<uint32_t> origin_;
  };

  /// Replaces each piece by what `write(range, writer)` writes for it. Empty pieces are dropped.
  template <typename Write>
  void rewrite(Write write) {
    Writer writer(*this);
    std::vector<Range> ranges;
    ranges.reserve(ranges_.size());
    for (const Range& range : ranges_) {
      const size_t begin = writer.text_.size();
      write(range, writer);
      if (writer.text_.size() > begin) ranges.push_back({begin, writer.text_.size()});
    }
    own_.swap(writer.text_);
    origin_.swap(writer.origin_);
    text_ = own_;
    ranges_ = std::move(ranges);
  }

 private:
  std::string_view text_;  // the source, or own_
  std::string own_;
  std::vector<uint32_t> origin_;  // of each byte of text_, if tracked and not as in the source
  size_t offset_;
  bool first_;  // whether the user's text begins here
  bool track_;
  std::vector<Range> ranges_;
};

}  // namespace trainyard
