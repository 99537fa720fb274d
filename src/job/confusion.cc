#include "src/job/confusion.h"

#include <algorithm>
#include <functional>

namespace trainyard {

namespace {

constexpr size_t kNameShown = 12;  // bytes of a class name
constexpr size_t kPairsShown = 20;

std::string cell(std::string text, size_t width) {
  if (text.size() > kNameShown) {
    size_t end = kNameShown;  // moved back to the beginning of a UTF-8 character
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    text.resize(end);
  }
  return std::string(width > text.size() ? width - text.size() : 0, ' ') + text;
}

std::string list_of(const std::vector<Mistake>& mistakes, const std::vector<std::string>& classes) {
  std::string text;
  for (const Mistake& m : mistakes) {
    text += "\n" + std::to_string(m.count) + " of " + classes[m.label] + " predicted as " +
            classes[m.prediction];
  }
  return text.empty() ? "\nnone" : text;
}

}  // namespace

std::vector<Mistake> most_confused(const std::vector<std::vector<int64_t>>& confusion,
                                   size_t count_max) {
  std::vector<Mistake> mistakes;
  for (size_t i = 0; i < confusion.size(); ++i) {
    for (size_t j = 0; j < confusion.size(); ++j) {
      if (i != j && confusion[i][j] > 0) mistakes.push_back({i, j, confusion[i][j]});
    }
  }
  std::ranges::stable_sort(mistakes, std::ranges::greater(), &Mistake::count);
  if (mistakes.size() > count_max) mistakes.resize(count_max);
  return mistakes;
}

std::vector<ClassFigures> class_figures(const std::vector<std::vector<int64_t>>& confusion) {
  std::vector<ClassFigures> figures(confusion.size());
  for (size_t k = 0; k < confusion.size(); ++k) {
    int64_t predicted = 0;
    for (size_t i = 0; i < confusion.size(); ++i) {
      figures[k].rows += confusion[k][i];
      predicted += confusion[i][k];
    }
    const auto hits = static_cast<double>(confusion[k][k]);
    ClassFigures& f = figures[k];
    if (predicted > 0) f.precision = hits / static_cast<double>(predicted);
    if (f.rows > 0) f.recall = hits / static_cast<double>(f.rows);
    if (hits > 0) f.f1 = 2 * f.precision * f.recall / (f.precision + f.recall);
  }
  return figures;
}

std::string confusion_text(const std::vector<std::vector<int64_t>>& confusion,
                           const std::vector<std::string>& classes) {
  if (confusion.size() > kConfusionClassesShown) {
    return list_of(most_confused(confusion, kPairsShown), classes);
  }
  size_t width = 5;
  for (const std::string& name : classes)
    width = std::max(width, std::min(name.size(), kNameShown));
  for (const auto& row : confusion) {
    for (const int64_t count : row) width = std::max(width, std::to_string(count).size());
  }
  ++width;
  std::string text = "\n" + cell("", width);
  for (const std::string& name : classes) text += cell(name, width);
  for (size_t i = 0; i < confusion.size(); ++i) {
    text += "\n" + cell(classes[i], width);
    for (const int64_t count : confusion[i]) text += cell(std::to_string(count), width);
  }
  return text;
}

}  // namespace trainyard
