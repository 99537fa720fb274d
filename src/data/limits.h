// src/data/limits.h: upper limits of datasets. Each is checked before memory is allocated.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/base/folder_files.h"  // kTreeFilesMax, kTreeDepthMax and kTreePathBytesMax

namespace trainyard {

inline constexpr int64_t kRowsMax = int64_t{1} << 31;
inline constexpr int64_t kColumnsMax = int64_t{1} << 18;   // an RGB image of 256 x 256 has 3 x 2^16
inline constexpr size_t kLineBytesMax = size_t{16} << 20;  // a CSV record with quoted line breaks
inline constexpr int64_t kCategoriesMax = 10000;           // categories per feature column
inline constexpr int64_t kClassesMax = int64_t{1} << 22;   // classes of the target
inline constexpr int64_t kGroupsMax = int64_t{1} << 20;    // groups by which jobs split rows
inline constexpr int64_t kClassFoldersMax = 65536;  // classes given by folders or a CSV of labels
// Limit of classes that are given as numbers without a list of classes; each row adds 8 to it.
inline constexpr int64_t kUnnamedClassesMax = 65536;
// Up to so many classes, clients receive the names, row counts and probabilities of all. For more
// classes they receive a row's kTopClasses most probable ones.
inline constexpr int64_t kClassesListedMax = 65536;
inline constexpr int64_t kTopClasses = 100;
inline constexpr size_t kNameBytesMax = 256;  // the name of a column, category or class
inline constexpr int64_t kImageValuesMax = int64_t{1} << 28;    // numbers per image
inline constexpr int64_t kInputSizeMax = int64_t{1} << 28;      // numbers per encoded sample
inline constexpr size_t kRawBytesMax = size_t{1} << 30;         // rows to predict, decompressed
inline constexpr int64_t kVocabularyMax = int64_t{1} << 20;     // different tokens
inline constexpr int64_t kTextLengthMax = 65536;                // tokens per row of text
inline constexpr int64_t kContextLengthMax = 65536;             // tokens per sample of a stream
inline constexpr int64_t kDistinctWordsMax = int64_t{4} << 20;  // different words that are counted
inline constexpr size_t kWordBytesMax = 64;  // a longer word is unknown to every vocabulary
inline constexpr int64_t kRawTokensMax = int64_t{1} << 28;    // tokens to predict, with padding
inline constexpr int64_t kImagePixelsMax = int64_t{1} << 26;  // pixels per image file
inline constexpr int64_t kImageSideMax = 16384;               // height and width of resized images
inline constexpr size_t kTokenizerBytesMax = size_t{64} << 20;  // a file of a model's tokenizer
inline constexpr double kTestShareMax = 0.9;
inline constexpr size_t kImageFileBytesMax = size_t{256} << 20;
inline constexpr size_t kTextFileBytesMax = size_t{64} << 20;  // the text of a row
inline constexpr size_t kLabelsBytesMax = size_t{256} << 20;   // a CSV with the labels of images
// Limit of an archive's content: this ratio to the archive's own size, or kArchiveContentMin if
// that is more. Images are not compressed as much; a text of zeros is compressed a thousand times.
inline constexpr int64_t kArchiveRatioMax = 200;
inline constexpr int64_t kArchiveContentMin = int64_t{64} << 20;
inline constexpr int64_t kSchemaBytesMax = int64_t{256} << 20;

}  // namespace trainyard
