// Which of two elements comes first in an order: the greater one if LARGEST is 1, else the lesser one.
override LARGEST: u32;
override NAN_FIRST: u32; // whether what is not a number comes before numbers, or behind them

