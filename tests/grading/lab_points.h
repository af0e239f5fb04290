// LabPoints: what points.json says about a lab's tasks.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lab::grading {

struct Task {
  std::string id;       // "1a"; its tests are the suite "Task1a" of the lab's verdict test
  std::string title;    // "cross_entropy"
  int points = 0;       // all if every test of the task passes, else none
  std::string handout;  // heading of the lab's README.md
  std::string hint;     // where to go on when it fails
};

struct LabPoints {
  std::string number;  // "01"
  std::string folder;  // "01_single_gpu"
  std::string title;
  std::vector<Task> tasks;

  /// As commands take it: "1".
  std::string short_number() const;
  int total() const;
  /// Throws Error for an unknown id.
  const Task& task(const std::string& id) const;
  /// `see "Task 1a" in labs/01_single_gpu/README.md`
  std::string place(const Task& task) const;
};

/// Reads labs/FOLDER/points.json. Throws Error that says what is missing.
LabPoints read_points(const std::filesystem::path& file);

}  // namespace lab::grading
