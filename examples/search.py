"""A program with two hyperparameters, which knows nothing of the search: gradient descent in a narrow valley.

python3 search.py --lr 0.001 --momentum 0.9
"""

import argparse


def main() -> None:
    """Descend from one slope of Rosenbrock's valley, and print the height after each 100 steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lr", type=float, default=0.001)
    parser.add_argument("--momentum", type=float, default=0.0)
    parser.add_argument("--steps", type=int, default=1000)
    given = parser.parse_args()
    x, y, speed_x, speed_y = -1.0, 1.0, 0.0, 0.0
    for step in range(1, given.steps + 1):
        slope_x, slope_y = 2 * (x - 1) - 40 * x * (y - x * x), 20 * (y - x * x)
        speed_x = given.momentum * speed_x - given.lr * slope_x
        speed_y = given.momentum * speed_y - given.lr * slope_y
        x, y = max(min(x + speed_x, 5), -5), max(min(y + speed_y, 5), -5)
        if step % 100 == 0:
            print(f"step={step} loss={(1 - x) ** 2 + 10 * (y - x * x) ** 2:.6g}", flush=True)


if __name__ == "__main__":
    main()
