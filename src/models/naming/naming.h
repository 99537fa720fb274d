// src/models/naming/naming.h: the names by which torchvision, timm and transformers store the
// weights of networks. A scheme is the table of one library's network: each row says which of its
// tensors make one tensor of a preset, and how their numbers are arranged. A network without a
// preset has a scheme without rows, so that a message can name it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainyard {

/// How a library arranges the numbers of a tensor, compared with this product.
enum class Arrangement : uint8_t {
  kSame,
  kTransposed,  // a matrix [inputs, outputs]; here it is [outputs, inputs]
  kStacked,     // several tensors; here they are one, joined along the first axis
  kReshaped,    // the same numbers in the same order under another shape
  kFirstRows    // here the tensor has the first rows only, if the file has more
};

/// Patterns of names, in which {i}, {j} and {k} stand for numbers and {p} for a word such as
/// "weight". In `theirs`, {i-1} is the number before {i}.
struct NameRow {
  std::string_view ours;
  std::vector<std::string_view> theirs;  // several only for kStacked, in the order of joining
  Arrangement arrangement = Arrangement::kSame;
};

/// Tensors of a library that have no counterpart here, by a pattern of src/base/glob.h.
struct UnneededTensors {
  std::string_view pattern;
  std::string_view reason;  // a few words, such as "a counter"
};

struct NamingScheme {
  std::string_view title;    // "transformers' GPT-2"
  std::string_view presets;  // the presets that are this network; empty if there are none
  // Patterns of names that only files of this scheme have. Empty if files are not recognized.
  std::vector<std::string_view> marks;
  // Beginnings that names of the rows and marks may have in addition. The library's own files have
  // the first one, except for tensors that begin as one of `unprefixed`.
  std::vector<std::string_view> prefixes = {};
  std::vector<std::string_view> unprefixed = {};
  std::vector<NameRow> rows = {};
  std::vector<UnneededTensors> unneeded = {};
  // In addition to the rows: names are ours except for the characters that join their parts, which
  // are "." where layers here have "/" or, after an import, "_".
  bool joins_differently = false;
  // The value of recipe.normalize that gives pixels as the library's published weights expect them.
  std::string_view normalize = {};
};

/// Returns all schemes. If several find the same number of tensors, the first is used.
const std::vector<NamingScheme>& naming_schemes();

/// Returns the names, without a prefix, of the tensors that make our tensor `ours`; empty if the
/// row is not about this tensor.
std::vector<std::string> names_by_row(const NameRow& row, std::string_view ours);

/// The names by which a library stores the tensor of a preset.
struct LibraryNames {
  std::vector<std::string> names;  // in full, with the prefix of the library's own files
  Arrangement arrangement = Arrangement::kSame;
};
/// Returns nullopt if no row of the scheme is about this tensor.
std::optional<LibraryNames> library_names(const NamingScheme& scheme, std::string_view ours);

/// Returns whether a name fits one of the scheme's marks, with or without a prefix.
bool has_mark(const NamingScheme& scheme, std::string_view name);

/// Returns the name in lower case with "_" for each character that is neither a letter nor a digit:
/// names that are equal then differ only by how their parts are joined.
std::string unjoined_name(std::string_view name);

// Return the schemes of image models and of language models.
std::vector<NamingScheme> image_schemes();
std::vector<NamingScheme> text_schemes();

}  // namespace trainyard
