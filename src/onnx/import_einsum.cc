// Imports Einsum of two values as a product. Dimensions with the same letter in both values and the
// result stay apart; those that are only in the values are summed over; the others become rows and
// columns.
#include <algorithm>
#include <cctype>

#include "src/onnx/import_table.h"

namespace trainyard::onnx {
namespace {

struct Equation {
  std::string first, second, result;  // one letter for each dimension
};

/// Returns nothing for an equation that is not one of two values with distinct letters.
std::optional<Equation> equation_of(std::string text) {
  std::erase(text, ' ');
  const size_t comma = text.find(','), arrow = text.find("->");
  if (comma == std::string::npos || arrow == std::string::npos || comma > arrow) {
    return std::nullopt;
  }
  Equation e{text.substr(0, comma), text.substr(comma + 1, arrow - comma - 1),
             text.substr(arrow + 2)};
  for (std::string letters : {e.first, e.second, e.result}) {
    const bool is_plain = std::ranges::all_of(
        letters, [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; });
    std::ranges::sort(letters);
    if (!is_plain || std::ranges::adjacent_find(letters) != letters.end()) return std::nullopt;
  }
  return e;
}

bool has(const std::string& letters, char c) { return letters.find(c) != std::string::npos; }

/// Returns the letters of `from` for which `test` is true.
template <typename F>
std::string letters_if(const std::string& from, F test) {
  std::string letters;
  std::ranges::copy_if(from, std::back_inserter(letters), test);
  return letters;
}

/// Returns the dimensions of some letters, joined to one.
std::vector<int> joined(const View& x, const std::string& all, const std::string& letters) {
  std::vector<int> atoms;
  for (const char c : letters) {
    const std::vector<int>& dim = x.dims[all.find(c)];
    atoms.insert(atoms.end(), dim.begin(), dim.end());
  }
  return atoms;
}

/// Takes the dimensions of `letters` off the front of `atoms`, which joined() has made of those of
/// `from`.
void split_dims(const std::vector<int>& atoms, const View& from, const std::string& all,
                const std::string& letters, std::vector<std::vector<int>>& dims) {
  auto begin = atoms.begin();
  for (const char c : letters) {
    const auto end = begin + std::ssize(from.dims[all.find(c)]);
    dims.emplace_back(begin, end);
    begin = end;
  }
}

Status import_einsum(NodeImport& n) {
  const auto e = n.input_count() == 2 ? equation_of(n.get_text("equation", "")) : std::nullopt;
  if (!e)
    return n.refuse("equation " + n.get_text("equation", "") + ", expected one like ij,jk->ik");
  ASSIGN_OR_RETURN(const View a, n.view(0));
  ASSIGN_OR_RETURN(const View b, n.view(1));
  if (std::ssize(e->first) != a.rank() || std::ssize(e->second) != b.rank()) {
    return n.refuse("the equation does not name every dimension");
  }
  const std::string kept =
      letters_if(e->first, [&](char c) { return has(e->second, c) && has(e->result, c); });
  const std::string summed =
      letters_if(e->first, [&](char c) { return has(e->second, c) && !has(e->result, c); });
  const std::string rows = letters_if(e->first, [&](char c) { return !has(e->second, c); });
  const std::string columns = letters_if(e->second, [&](char c) { return !has(e->first, c); });
  const std::string found = kept + rows + columns;
  if (!std::ranges::is_permutation(found, e->result)) {
    return n.refuse("sums over a dimension of one value");
  }
  View left = a, right = b;
  left.dims.clear();
  right.dims.clear();
  for (const char c : kept) {
    left.dims.push_back(a.dims[e->first.find(c)]);
    right.dims.push_back(b.dims[e->second.find(c)]);
  }
  left.dims.push_back(joined(a, e->first, rows));
  left.dims.push_back(joined(a, e->first, summed));
  right.dims.push_back(joined(b, e->second, summed));
  right.dims.push_back(joined(b, e->second, columns));
  ASSIGN_OR_RETURN(View y, n.importer().mat_mul(left, right));
  std::vector<std::vector<int>> dims(y.dims.begin(), y.dims.end() - 2);
  split_dims(y.dims[kept.size()], a, e->first, rows, dims);
  split_dims(y.dims[kept.size() + 1], b, e->second, columns, dims);
  y.dims.clear();
  for (const char c : e->result) y.dims.push_back(dims[found.find(c)]);
  return n.give(std::move(y));
}

}  // namespace

std::vector<ImportRow> einsum_imports() {
  return {{.op = "Einsum",
           .since = 12,
           .becomes = "mat_mul",
           .limits = "other than two values; sums over a dimension of one value",
           .attributes = {{"equation", AttributeSpec::kText}},
           .import = import_einsum}};
}

}  // namespace trainyard::onnx
