CREATE PUBLICATION shop_lake FOR TABLE orders, items;
