// src/data/limits.h: what a dataset may hold at most. Every one is checked before memory is taken.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/base/folder_files.h"  // kTreeFilesMax and its like

namespace trainyard {

inline constexpr int64_t kRowsMax = int64_t{1} << 31;
inline constexpr int64_t kColumnsMax = int64_t{1} << 18;   // a 256 x 256 image has 3 x 2^16
inline constexpr size_t kLineBytesMax = size_t{16} << 20;  // one CSV record, quoted breaks too
inline constexpr int64_t kCategoriesMax = 10000;           // of one feature column
inline constexpr int64_t kClassesMax = int64_t{1} << 22;   // of the target
inline constexpr int64_t kClassFoldersMax = 65536;  // classes that are folders, or in a listing
// Classes that a number alone may name, where nothing tells how many there are, beside 8 a row.
inline constexpr int64_t kUnnamedClassesMax = 65536;
// Classes whose names, row counts and probabilities are sent to clients one and all; and of more
// classes, how many of a row's most probable ones.
inline constexpr int64_t kClassesListedMax = 65536;
inline constexpr int64_t kTopClasses = 100;
inline constexpr size_t kNameBytesMax = 256;  // a column's, category's or class's name
inline constexpr int64_t kImageValuesMax = int64_t{1} << 28;  // of one image
inline constexpr int64_t kInputSizeMax = int64_t{1} << 28;    // of one sample, one-hot columns too
inline constexpr size_t kRawBytesMax = size_t{1} << 30;       // rows to predict, decompressed
inline constexpr int64_t kVocabularyMax = int64_t{1} << 20;   // different tokens
inline constexpr int64_t kTextLengthMax = 65536;              // tokens of one row of text
inline constexpr int64_t kContextLengthMax = 65536;           // tokens of one sample of a stream
inline constexpr int64_t kDistinctWordsMax = int64_t{4} << 20;  // kept while they are counted
inline constexpr size_t kWordBytesMax = 64;  // a longer word is unknown to every vocabulary
inline constexpr int64_t kRawTokensMax = int64_t{1} << 28;    // of rows to predict, padding too
inline constexpr int64_t kImagePixelsMax = int64_t{1} << 26;  // of one image file
inline constexpr int64_t kImageSideMax = 16384;               // of images that are resized
inline constexpr double kTestShareMax = 0.9;
inline constexpr size_t kImageFileBytesMax = size_t{256} << 20;
inline constexpr size_t kTextFileBytesMax = size_t{64} << 20;  // of one row's text
inline constexpr size_t kLabelsBytesMax = size_t{256} << 20;   // of a CSV beside images
// What an archive may hold: so many times its own size, but always kArchiveContentMin. Images do
// not shrink further; a text of zeros shrinks a thousand times.
inline constexpr int64_t kArchiveRatioMax = 200;
inline constexpr int64_t kArchiveContentMin = int64_t{64} << 20;
inline constexpr int64_t kSchemaBytesMax = int64_t{256} << 20;

}  // namespace trainyard
