#include "src/data/tokenizers/pre_tokenizers.h"

#include <algorithm>
#include <array>
#include <utility>

#include "src/base/text.h"

namespace trainyard {
namespace {

using PieceRange = TextPieces::Range;

/// A part of a piece, and whether it is a match.
struct Part {
  PieceRange range;
  bool match;
};

/// Adds parts to the pieces by a behavior.
class PartWriter {
 public:
  PartWriter(CutBehavior behavior, std::vector<PieceRange>& out) : behavior_(behavior), out_(out) {}

  /// Adds the parts of one piece, which are adjacent and cover it.
  void add(const std::vector<Part>& parts) {
    const size_t first = out_.size();
    for (size_t i = 0; i < parts.size(); ++i) {
      const Part& part = parts[i];
      const bool after_match = i > 0 && parts[i - 1].match;
      const bool again = i > 0 && parts[i - 1].match == part.match;
      switch (behavior_) {
        case CutBehavior::kRemoved:
          if (!part.match) out_.push_back(part.range);
          break;
        case CutBehavior::kIsolated:
          out_.push_back(part.range);
          break;
        case CutBehavior::kContiguous:
          put(part.range, again, first);
          break;
        case CutBehavior::kMergedWithPrevious:
          put(part.range, part.match && !after_match, first);
          break;
        case CutBehavior::kMergedWithNext:
          // A match joins what follows it, unless that is a match too.
          put(part.range, after_match && !part.match, first);
          break;
      }
    }
    const auto added = out_.begin() + static_cast<std::ptrdiff_t>(first);
    out_.erase(std::remove_if(added, out_.end(),
                              [](const PieceRange& range) { return range.size() == 0; }),
               out_.end());
  }

 private:
  void put(PieceRange range, bool joined, size_t first) {
    if (joined && out_.size() > first) {
      out_.back().end = range.end;
    } else {
      out_.push_back(range);
    }
  }

  CutBehavior behavior_;
  std::vector<PieceRange>& out_;
};

class PatternCutter final : public TextRewriter {
 public:
  PatternCutter(Pattern pattern, CutBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  void apply(TextPieces& pieces) const override {
    std::vector<PieceRange> out;
    PartWriter writer(behavior_, out);
    std::vector<Part> parts;
    for (const PieceRange& range : pieces.ranges()) {
      parts.clear();
      size_t done = range.begin;
      pattern_.visit_matches(pieces.text_of(range), [&](size_t begin, size_t end) {
        if (range.begin + begin > done) parts.push_back({{done, range.begin + begin}, invert_});
        parts.push_back({{range.begin + begin, range.begin + end}, !invert_});
        done = range.begin + end;
      });
      if (done < range.end) parts.push_back({{done, range.end}, invert_});
      writer.add(parts);
    }
    pieces.set_ranges(std::move(out));
  }

 private:
  Pattern pattern_;
  CutBehavior behavior_;
  bool invert_;
};

template <typename IsMatch>
class ClassCutter final : public TextRewriter {
 public:
  ClassCutter(IsMatch is_match, CutBehavior behavior) : is_match_(is_match), behavior_(behavior) {}

  void apply(TextPieces& pieces) const override {
    std::vector<PieceRange> out;
    PartWriter writer(behavior_, out);
    std::vector<Part> parts;
    for (const PieceRange& range : pieces.ranges()) {
      parts.clear();
      for (std::string_view rest = pieces.text_of(range); !rest.empty();) {
        const size_t begin = range.end - rest.size();
        const bool match = is_match_(take_code_point(rest));
        const size_t end = range.end - rest.size();
        if (!match && !parts.empty() && !parts.back().match) {
          parts.back().range.end = end;
        } else {
          parts.push_back({{begin, end}, match});
        }
      }
      writer.add(parts);
    }
    pieces.set_ranges(std::move(out));
  }

 private:
  IsMatch is_match_;
  CutBehavior behavior_;
};

class Metaspace final : public TextRewriter {
 public:
  Metaspace(std::string mark, PrependScheme scheme, bool split)
      : mark_(std::move(mark)), scheme_(scheme), split_(split) {}

  void apply(TextPieces& pieces) const override {
    pieces.rewrite([&](const PieceRange& range, TextPieces::Writer& out) {
      const std::string_view text = pieces.text_of(range);
      const bool marked = text.starts_with(' ') || text.starts_with(mark_);
      const bool wanted = scheme_ == PrependScheme::kAlways ||
                          (scheme_ == PrependScheme::kFirst && pieces.is_first(range));
      if (wanted && !marked) out.put(mark_, range.begin);
      size_t done = range.begin;
      for (size_t at = range.begin; at < range.end; ++at) {
        if (pieces.text()[at] != ' ') continue;
        out.keep(done, at);
        out.put(mark_, at);
        done = at + 1;
      }
      out.keep(done, range.end);
    });
    if (!split_) return;
    std::vector<PieceRange> ranges;
    for (const PieceRange& range : pieces.ranges()) {
      const std::string_view text = pieces.text_of(range);
      size_t begin = 0;
      for (size_t at = 0; (at = text.find(mark_, at)) != std::string_view::npos;
           at += mark_.size()) {
        if (at > begin) ranges.push_back({range.begin + begin, range.begin + at});
        begin = at;
      }
      ranges.push_back({range.begin + begin, range.end});
    }
    pieces.set_ranges(std::move(ranges));
  }

 private:
  std::string mark_;
  PrependScheme scheme_;
  bool split_;
};

class BlankPrepender final : public TextRewriter {
 public:
  void apply(TextPieces& pieces) const override {
    pieces.rewrite([&](const PieceRange& range, TextPieces::Writer& out) {
      if (!pieces.text_of(range).starts_with(' ')) out.put(" ", range.begin);
      out.keep(range.begin, range.end);
    });
  }
};

constexpr auto kBehaviors = std::to_array<std::pair<std::string_view, CutBehavior>>({
    {"Removed", CutBehavior::kRemoved},
    {"Isolated", CutBehavior::kIsolated},
    {"MergedWithPrevious", CutBehavior::kMergedWithPrevious},
    {"MergedWithNext", CutBehavior::kMergedWithNext},
    {"Contiguous", CutBehavior::kContiguous},
});

}  // namespace

std::optional<CutBehavior> find_cut_behavior(std::string_view name) {
  for (const auto& [known, behavior] : kBehaviors) {
    if (known == name) return behavior;
  }
  return std::nullopt;
}

std::unique_ptr<const TextRewriter> make_pattern_cutter(Pattern pattern, CutBehavior behavior,
                                                        bool invert) {
  return std::make_unique<PatternCutter>(std::move(pattern), behavior, invert);
}

std::unique_ptr<const TextRewriter> make_class_cutter(CodePointClass is_match,
                                                      CutBehavior behavior) {
  return std::make_unique<ClassCutter<CodePointClass>>(is_match, behavior);
}

std::unique_ptr<const TextRewriter> make_character_cutter(char32_t delimiter) {
  const auto is_match = [delimiter](char32_t c) { return c == delimiter; };
  return std::make_unique<ClassCutter<decltype(is_match)>>(is_match, CutBehavior::kRemoved);
}

bool is_any_punctuation(char32_t c) {
  const bool ascii = (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
                     (c >= '{' && c <= '~');
  return ascii || is_punctuation(c);
}

std::unique_ptr<const TextRewriter> make_metaspace(std::string mark, PrependScheme scheme,
                                                   bool split) {
  return std::make_unique<Metaspace>(std::move(mark), scheme, split);
}

std::unique_ptr<const TextRewriter> make_blank_prepender() {
  return std::make_unique<BlankPrepender>();
}

std::string_view gpt2_pattern() {
  return R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
}

}  // namespace trainyard
