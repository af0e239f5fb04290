// Reading points.json.
#include "tests/grading/lab_points.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "common/error.h"

namespace lab::grading {

int LabPoints::total() const {
  int sum = 0;
  for (const Task& task : tasks) sum += task.points;
  return sum;
}

const Task& LabPoints::task(const std::string& id) const {
  for (const Task& task : tasks)
    if (task.id == id) return task;
  fail("lab {} has no task {}", number, id);
}

std::string LabPoints::short_number() const {
  return number.substr(number.starts_with('0') ? 1 : 0);
}

std::string LabPoints::place(const Task& task) const {
  return fmt::format("see \"{}\" in labs/{}/README.md", task.handout, folder);
}

LabPoints read_points(const std::filesystem::path& file) {
  std::ifstream stream(file);
  require(stream.good(), "cannot read {}", file.string());
  try {
    const nlohmann::json json = nlohmann::json::parse(stream);
    LabPoints points;
    points.folder = json.at("lab");
    points.number = points.folder.substr(0, points.folder.find('_'));
    points.title = json.at("title");
    for (const auto& entry : json.at("tasks"))
      points.tasks.push_back({.id = entry.at("id"),
                              .title = entry.at("title"),
                              .points = entry.at("points"),
                              .handout = entry.at("handout"),
                              .hint = entry.at("hint")});
    return points;
  } catch (const nlohmann::json::exception& error) {
    fail("{}: {}", file.string(), error.what());
  }
}

}  // namespace lab::grading
