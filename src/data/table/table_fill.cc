#include "src/data/table/table_fill.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <span>

#include "src/data/files/byte_source.h"
#include "src/data/limits.h"
#include "src/data/table/table_blocks.h"
#include "src/data/table/table_reader.h"
#include "src/data/typed_dataset.h"

namespace trainyard {
namespace {

using Codes = std::vector<int32_t>;

// The size of a thread's buffer of rows: small enough to stay in the cache of its core.
constexpr int64_t kPieceBytes = int64_t{256} << 10;

int64_t row_bytes(const RowFiller::Layout& layout) {
  return 4 * (layout.numeric + layout.categorical + layout.text_length + 1) +
         layout.pixels * static_cast<int64_t>(size_of(layout.pixel_dtype));
}

/// Calls visit(array of a, array of b) for each array.
template <typename Visit>
void visit_both(TypedRows& a, TypedRows& b, const Visit& visit) {
  visit(a.numeric, b.numeric);
  visit(a.category, b.category);
  visit(a.image_u8, b.image_u8);
  visit(a.image_f32, b.image_f32);
  visit(a.tokens, b.tokens);
  visit(a.target_class, b.target_class);
  visit(a.target_numeric, b.target_numeric);
}

/// Fills the rows on one thread, one after another.
Result<std::vector<int64_t>> fill_one_by_one(const CsvOptions& options, const CellReader& cells,
                                             const TableFile& file, Codebook& codebook,
                                             TypedRows& out) {
  const int64_t rows = file.scan.rows;
  ASSIGN_OR_RETURN(const std::unique_ptr<ByteSource> source,
                   open_file_source(file.path, file.role));
  ASSIGN_OR_RETURN(const std::unique_ptr<TableReader> table,
                   open_table(options, *source, file.role, file.layout.names));
  Problems problems;
  RowFiller filler(file.role, file.layout, cells, codebook, out, problems);
  filler.reserve(rows);
  std::vector<std::string_view> fields;
  const auto changed = [&] {
    return dataset_error(file.role, "the file changed while it was read");
  };
  for (;;) {
    ASSIGN_OR_RETURN(const bool more, table->next(fields));
    if (!more) break;
    if (fields.size() != file.layout.roles.size()) return changed();
    if (is_skipped(options, cells, fields, filler.target_column())) {
      filler.skip();
      continue;
    }
    if (out.rows == rows) return changed();
    filler.add(fields, table->line());
    if (problems.full()) break;
  }
  if (!problems.empty()) return problems.error();
  if (out.rows != rows) return changed();
  return filler.missing();
}

/// Fills the rows of one thread's blocks: collects them in a small buffer and copies that to the
/// rows' final places.
class PartFiller {
 public:
  PartFiller(const CsvOptions& options, const CellReader& cells, const TableFile& file,
             const Codebook& codebook, TypedRows& out)
      : file_(file),
        options_(options),
        cells_(cells),
        out_(out),
        codebook_(codebook),
        rows_(options, file.layout.names),
        filler_(file.role, file.layout, cells, codebook_, piece_, problems_),
        piece_rows_(std::max(int64_t{1}, kPieceBytes / row_bytes(file.layout))) {}

  /// Fills the rows of a block. Returns false if anything must be refused.
  bool take(RecordBlock& block) {
    const std::vector<int64_t>& firsts = file_.scan.block_rows;
    const auto index = static_cast<size_t>(block.index);
    if (index >= firsts.size()) return false;
    const int64_t end = index + 1 < firsts.size() ? firsts[index + 1] : file_.scan.rows;
    place_ = firsts[index];
    filled_.push_back({static_cast<size_t>(place_), static_cast<size_t>(end)});
    const bool processed = rows_.read(block, [&](const std::vector<std::string_view>& fields) {
      if (fields.size() != file_.layout.roles.size()) return false;
      if (is_skipped(options_, cells_, fields, filler_.target_column())) return true;
      if (place_ + piece_.rows == end) return false;
      filler_.add(fields, 0);
      if (piece_.rows == piece_rows_) flush();
      return problems_.empty();
    });
    if (processed) flush();
    return processed && place_ == end;
  }

  int64_t filled_rows() const {
    int64_t rows = 0;
    for (const Range& range : filled_) rows += static_cast<int64_t>(range.end - range.begin);
    return rows;
  }
  const std::vector<int64_t>& missing() const { return filler_.missing(); }
  const Codebook& codebook() const { return codebook_; }
  /// Replaces this part's codes by new ones in all its rows. Each argument maps old to new codes.
  void recode(const std::vector<Codes>& categories, const Codes& classes) {
    const auto width = static_cast<size_t>(file_.layout.categorical);
    for (const Range& range : filled_) {
      for (size_t row = range.begin; row < range.end; ++row) {
        for (size_t c = 0; c < width; ++c) {
          int32_t& code = out_.category[row * width + c];
          if (code >= 0) code = categories[c][static_cast<size_t>(code)];
        }
        if (!classes.empty()) {
          out_.target_class[row] = classes[static_cast<size_t>(out_.target_class[row])];
        }
      }
    }
  }

 private:
  struct Range {
    size_t begin, end;
  };

  void flush() {
    if (piece_.rows == 0) return;
    visit_both(piece_, out_, [&](auto& from, auto& to) {
      const int64_t width = std::ssize(from) / piece_.rows;
      std::ranges::copy(from, to.begin() + place_ * width);
      from.clear();
    });
    place_ += piece_.rows;
    piece_.rows = 0;
  }

  const TableFile& file_;
  const CsvOptions& options_;
  const CellReader& cells_;
  TypedRows& out_;
  Codebook codebook_;
  BlockRows rows_;
  TypedRows piece_;
  Problems problems_;
  RowFiller filler_;
  const int64_t piece_rows_;
  int64_t place_ = 0;  // index in `out_` of the piece's first row
  std::vector<Range> filled_;
};

/// The names of a column in all parts, and the common codes.
struct MergedCodes {
  explicit MergedCodes(CategoryForm form) : all(form) {}
  CategoryCodes all;
  std::vector<Codes> new_codes;  // by part: maps its codes to those of `all`
  void add(const CategoryCodes& codes) {
    Codes& added = new_codes.emplace_back();
    for (const std::string& name : codes.names()) added.push_back(all.add(name));
  }
};

/// Changes the codes of all parts to common ones. Returns false if there are too many names.
bool merge_codes(std::deque<PartFiller>& parts, Codebook& codebook) {
  std::vector<MergedCodes> categories;
  for (const CategoryCodes& codes : codebook.categories) categories.emplace_back(codes.form());
  MergedCodes classes(codebook.classes.form());
  for (const PartFiller& part : parts) {
    for (size_t c = 0; c < categories.size(); ++c) {
      categories[c].add(part.codebook().categories[c]);
    }
    classes.add(part.codebook().classes);
  }
  for (size_t c = 0; c < categories.size(); ++c) {
    if (categories[c].all.count() > kCategoriesMax) return false;
    codebook.categories[c] = categories[c].all;
  }
  if (classes.all.count() > kClassesMax) return false;
  codebook.classes = classes.all;
  for (size_t i = 0; i < parts.size(); ++i) {
    std::vector<Codes> of_part;
    for (MergedCodes& merged : categories) of_part.push_back(std::move(merged.new_codes[i]));
    parts[i].recode(of_part, classes.new_codes[i]);
  }
  return true;
}

/// Fills the rows with several threads. Returns nullopt if anything must be refused.
std::optional<std::vector<int64_t>> fill_by_blocks(const CsvOptions& options,
                                                   const CellReader& cells, const TableFile& file,
                                                   const TableThreads& threads, Codebook& codebook,
                                                   TypedRows& out) {
  std::deque<PartFiller> parts;  // one per thread; a deque, so that references stay valid
  const bool processed = read_blocks(options, file.path, threads, file.scan.rows_begin, [&]() {
    PartFiller& part = parts.emplace_back(options, cells, file, codebook, out);
    return [&part](RecordBlock& block) { return part.take(block); };
  });
  int64_t filled = 0;
  for (const PartFiller& part : parts) filled += part.filled_rows();
  if (!processed || filled != file.scan.rows) return std::nullopt;
  if (codebook.learning && !merge_codes(parts, codebook)) return std::nullopt;
  std::vector<int64_t> missing(file.layout.roles.size());
  for (const PartFiller& part : parts) {
    for (size_t i = 0; i < missing.size(); ++i) missing[i] += part.missing()[i];
  }
  return missing;
}

/// Resizes the arrays for all rows. Every value is written later, missing ones included.
void make_room(const TableFile& file, TypedRows& out) {
  const RowFiller::Layout& layout = file.layout;
  const auto n = static_cast<size_t>(file.scan.rows);
  out.rows = file.scan.rows;
  out.numeric.resize(n * static_cast<size_t>(layout.numeric));
  out.category.resize(n * static_cast<size_t>(layout.categorical));
  out.tokens.resize(n * static_cast<size_t>(layout.text_length));
  const size_t pixels = n * static_cast<size_t>(layout.pixels);
  if (layout.pixel_dtype == DType::kU8) {
    out.image_u8.resize(pixels);
  } else {
    out.image_f32.resize(pixels);
  }
  for (const ColumnRole& role : layout.roles) {
    if (role.kind == ColumnRole::Kind::kTargetClass) out.target_class.resize(n);
    if (role.kind == ColumnRole::Kind::kTargetNumeric) out.target_numeric.resize(n);
  }
}

}  // namespace

Result<std::vector<int64_t>> fill_rows(const CsvOptions& options, const CellReader& cells,
                                       const TableFile& file, const TableThreads& threads,
                                       Codebook& codebook, TypedRows& out) {
  if (Status s = check_memory(file.scan.rows * row_bytes(file.layout), file.role); !s.ok()) {
    return std::move(s).error();
  }
  if (!file.scan.block_rows.empty()) {
    make_room(file, out);
    if (auto missing = fill_by_blocks(options, cells, file, threads, codebook, out)) {
      return *std::move(missing);
    }
    out = {};
  }
  return fill_one_by_one(options, cells, file, codebook, out);
}

}  // namespace trainyard
